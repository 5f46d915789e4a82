"""repeng's vectors: their direction against scikit-learn's PCA, their sign, their length and their blocks."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from repsurgery import lm
from repsurgery.errors import ParameterError
from repsurgery.studies.toxicity.rivals.repeng import control_vector, steered_blocks
from tests.studies.toxicity.rivals.contexts import rival, taught_context, tiny_context


def test_the_vector_is_the_component_of_pca():
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(40, 6)), rng.normal(size=(40, 6)) * [1, 2, 3, 4, 5, 6] + 0.5
    vector = control_vector(source, target)
    component = PCA(n_components=1).fit(target - source).components_[0]
    np.testing.assert_allclose(abs(vector @ component), 1.0, rtol=0, atol=1e-9)
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-12)
    # most targets lie on the side to which it points, and swapping the labels turns it around
    assert ((target - source) @ vector > 0).mean() >= 0.5
    np.testing.assert_allclose(control_vector(target, source), -vector, rtol=0, atol=1e-9)


def test_pairs_by_hand():
    source = np.zeros((3, 2))
    assert control_vector(source, np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 0.0]])).tolist() == pytest.approx([1, 0])
    # two of three targets are smaller, although the mean is larger
    assert control_vector(source, np.array([[-1.0, 0.0], [-2.0, 0.0], [9.0, 0.0]])).tolist() == pytest.approx([-1, 0])


def test_blocks_are_repeng_s_range():
    # its manual steers range(-5, -18, -1) of 32 blocks
    assert list(steered_blocks(32)) == sorted(32 + i for i in range(-5, -18, -1))
    assert list(steered_blocks(30)) == sorted(30 + i for i in range(-5, -18, -1))
    assert list(steered_blocks(12)) == [5, 6, 7, 8, 9]
    assert list(steered_blocks(2)) == [1]
    assert list(steered_blocks(30, 3)) == [23, 24, 25]
    assert list(steered_blocks(2, 5)) == [0, 1]


def test_a_vector_of_length_one_is_added_to_the_block(tmp_path):
    repeng = rival("repeng strength=3", tiny_context(work=tmp_path))
    block = repeng.model.model.layers[1]
    ids, seen = torch.tensor([[1, 5, 9, 30]]), []
    with torch.no_grad():
        repeng.prepare(progress=False)
        for strength in (0, 3):
            with rival(f"repeng strength={strength}", repeng.context).applied():
                handle = block.register_forward_hook(lambda module, args, output: seen.append(output))
                repeng.model(ids)
                handle.remove()
    vector = torch.tensor(repeng.part("vectors").arrays["layers.1"]).float()
    torch.testing.assert_close(seen[1] - seen[0], (3 * vector).expand_as(seen[0]), rtol=1e-4, atol=1e-5)


def test_the_vectors_point_from_toxic_texts_to_others(tmp_path):
    context = taught_context(work=tmp_path)
    fitted = context.texts.fitted
    # of an odd number of pairs, more lie on one side
    for site, vector in rival("repeng texts=39", context).part("vectors").arrays.items():
        options = {"site": site, "pooling": "last", "max_length": 16, "progress": False}
        source, target = (
            lm.extract(context.model, context.tokenizer, fitted[label][:39], **options) for label in ("toxic", "clean")
        )
        component = PCA(n_components=1).fit(target - source).components_[0]
        np.testing.assert_allclose(abs(vector @ component), 1.0, rtol=0, atol=1e-4)
        assert ((target - source) @ vector > 0).mean() > 0.5


def test_more_blocks_than_the_model_has_are_refused_before_anything_is_made(tmp_path):
    context = tiny_context(work=tmp_path)
    for layers in (-1, 3, 99):
        with pytest.raises(ParameterError, match=rf"'repeng layers={layers}' has layers={layers}.*lie in \[0, 2\]"):
            rival(f"repeng layers={layers}", context)
    rival("repeng layers=2", context).prepare(progress=False)
