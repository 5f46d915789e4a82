"""AurA: AUROCs against scikit-learn, the scale by hand, and the neurons that it scales."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from repsurgery.studies.toxicity.decoding.module_hooks import pooled_states
from repsurgery.studies.toxicity.rivals.aura import auroc, dampening, mlp_sites, token_max
from tests.lm.tiny_models import tiny_model
from tests.studies.toxicity.rivals.contexts import rival, taught_context, tiny_context


def test_aurocs_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    # whole numbers, so that there are ties within and between the labels
    source, target = rng.integers(0, 9, (30, 6)).astype(np.float32), rng.integers(0, 7, (50, 6)).astype(np.float32)
    labels = np.repeat([1, 0], [30, 50])
    expected = [roc_auc_score(labels, column) for column in np.concatenate([source, target]).T]
    np.testing.assert_allclose(auroc(source, target), expected, rtol=0, atol=1e-12)
    assert len(set(expected)) == 6


def test_two_neurons_by_hand():
    # of four comparisons the source of the first neuron wins three, that of the second one
    area = auroc(np.array([[3.0, 0.0], [1.0, 2.0]]), np.array([[2.0, 3.0], [0.0, 1.0]]))
    assert area.tolist() == [0.75, 0.25]
    assert dampening(area, 1.0).tolist() == [0.5, 1.0]
    assert dampening(area, 0.5).tolist() == [0.75, 1.0]
    assert dampening(area, 0.0).tolist() == [1.0, 1.0]
    assert dampening(np.array([1.0]), 1.0).tolist() == [0.0]


def test_the_maximum_is_over_tokens_alone():
    state = torch.tensor([[[-3.0], [-2.0], [9.0]], [[1.0], [5.0], [4.0]]])
    assert token_max(state, torch.tensor([[1, 1, 0], [1, 1, 1]])).tolist() == [[-2.0], [5.0]]


@pytest.mark.parametrize(
    ("family", "layers"),
    [("llama", {"gate_proj", "up_proj", "down_proj"}), ("gpt2", {"c_fc", "c_proj"}), ("opt", {"fc1", "fc2"})],
)
def test_the_neurons_are_outputs_of_the_mlp_s_linear_layers(family, layers):
    paths = [site.path for site in mlp_sites(tiny_model(family))]
    assert len(paths) == 2 * len(layers) and {path.rsplit(".", 1)[1] for path in paths} == layers
    assert not any("attn" in path for path in paths)


def test_every_neuron_is_scaled(tmp_path):
    aura = rival("aura", tiny_context(work=tmp_path))
    site = mlp_sites(aura.model)[0]
    ids, seen = torch.tensor([[1, 5, 9, 30]]), []
    with torch.no_grad():
        aura.prepare(progress=False)
        for block in (rival("aura strength=0", aura.context), aura):
            with block.applied():
                handle = site.module.register_forward_hook(lambda module, args, output: seen.append(output))
                aura.model(ids)
                handle.remove()
    scale = torch.tensor(dampening(aura.part("aurocs").arrays[site.name], 1.0)).float()
    assert scale.min() < 1 and (scale == 1).any()
    torch.testing.assert_close(seen[1], seen[0] * scale)


def test_the_aurocs_are_those_of_toxic_texts(tmp_path):
    context = taught_context(work=tmp_path)
    model, fitted = context.model, context.texts.fitted
    texts, labels = [*fitted["toxic"], *fitted["clean"]], [1] * 40 + [0] * 40
    states = pooled_states(model, context.tokenizer, texts, mlp_sites(model), token_max, max_length=16)
    for name, found in rival("aura", context).part("aurocs").arrays.items():
        expected = np.array([roc_auc_score(labels, column) for column in states[name].T])
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
        # with the labels swapped they are one minus these
        assert np.abs(expected - 0.5).max() > 0.2
