"""Groups of texts: a text's tokens are one group, several texts may be one, and both survive an interruption."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import CacheWarning, LabelError
from repsurgery.files import Contents, read_file, write_file
from repsurgery.lm.read.states import reader
from repsurgery.lm.read.text_groups import TextGroups
from tests.lm.test_class_moments import LABELS, SITES, SOME, assert_same
from tests.lm.test_extract import Interrupting

GROUPS = [f"prompt {i % 11}" for i in range(60)]


def token_rows(model, tokenizer, site):
    """Return the states of all tokens, and the number of the text of each."""
    tokens = [tokenizer(text)["input_ids"] for text in SOME]
    with reader(model, tokenizer, [site], "all") as read:
        rows = [read([one])[site] for one in tokens]
    return np.concatenate(rows), np.repeat(np.arange(60), [len(part) for part in rows])


def assert_same_groups(found, wanted, rtol=1e-4):
    assert_same(found, wanted)
    for label in wanted:
        assert found[label].groups.count == wanted[label].groups.count
        assert found[label].groups.squares == wanted[label].groups.squares
        assert_allclose(found[label].groups.between, wanted[label].groups.between, rtol=rtol)
        assert_allclose(found[label].effective_count, wanted[label].effective_count, rtol=rtol)


@pytest.mark.parametrize("groups", [None, GROUPS])
def test_groups_of_texts_are_those_of_the_extracted_rows(model, tokenizer, groups):
    options = {"sites": SITES, "groups": groups, "batch_size": 7, "progress": False}
    tokens = lm.class_moments(model, tokenizer, SOME, LABELS, pooling="all", **options)
    texts = lm.class_moments(model, tokenizer, SOME, LABELS, pooling="last", **options)
    for site in SITES:
        rows, text = token_rows(model, tokenizer, site)
        z, g = np.array(LABELS)[text], text if groups is None else np.array(groups)[text]
        wanted = rs.ClassMoments.of(rows, z, groups=g)
        assert_same_groups(tokens[site], wanted)
        if groups is None:
            assert texts[site]["rude"].groups is None
            assert texts[site]["rude"].effective_count == LABELS.count("rude")
        else:
            last = lm.extract(model, tokenizer, SOME, site=site, progress=False)
            assert_same_groups(texts[site], rs.ClassMoments.of(last, LABELS, groups=groups))


@pytest.mark.parametrize("groups", [None, GROUPS])
def test_groups_survive_an_interruption(model, tokenizer, tmp_path, groups):
    options = {"sites": SITES, "pooling": "all", "groups": groups, "batch_size": 10, "progress": False}
    expected = lm.class_moments(model, tokenizer, SOME, LABELS, **options)
    passes = Interrupting(model, stop=4)
    with pytest.raises(KeyboardInterrupt):
        lm.class_moments(model, tokenizer, SOME, LABELS, work_dir=tmp_path, **options)
    passes.remove()
    passes = Interrupting(model, stop=None)
    found = lm.class_moments(model, tokenizer, SOME, LABELS, work_dir=tmp_path, **options)
    assert passes.passes == 3
    for site in SITES:
        assert_same_groups(found[site], expected[site], rtol=1e-9)
    again = lm.class_moments(model, tokenizer, SOME, LABELS, work_dir=tmp_path, **options)
    assert passes.passes == 3
    assert_same_groups(again["final"], expected["final"], rtol=1e-9)
    # other groups are another job
    other = {**options, "groups": [*GROUPS[1:], "another"]}
    lm.class_moments(model, tokenizer, SOME, LABELS, work_dir=tmp_path, **other)
    assert passes.passes == 3 + 6
    passes.remove()


def test_damaged_groups_are_read_anew(model, tokenizer, tmp_path):
    options = {"sites": ["final"], "pooling": "all", "groups": GROUPS, "batch_size": 10, "progress": False}
    passes = Interrupting(model, stop=3)
    with pytest.raises(KeyboardInterrupt):
        lm.class_moments(model, tokenizer, SOME, LABELS, work_dir=tmp_path, **options)
    passes.remove()
    [path] = tmp_path.rglob("progress.safetensors")
    held = read_file(path)
    assert any(name.startswith("open.") for name in held.arrays)
    for lost in ("open", "closed"):
        arrays = {name: array for name, array in held.arrays.items() if not name.startswith(lost) or "weights" in name}
        write_file(path, Contents(held.kind, held.header, {**arrays, "open.7.0.weights": np.zeros((1, 2))}))
        with pytest.warns(CacheWarning, match="read anew"):
            found = lm.class_moments(model, tokenizer, SOME, LABELS, work_dir=tmp_path, **options)
    expected = lm.class_moments(model, tokenizer, SOME, LABELS, **options)
    assert_same_groups(found["final"], expected["final"], rtol=1e-9)


def test_only_unfinished_groups_are_kept():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 3)).astype(np.float32)
    held = TextGroups(["final"], np.zeros(20, dtype=np.intp), np.arange(20) // 2)
    open_at = []
    for i in range(20):
        held.take([i], [2], {"final": rows[2 * i : 2 * i + 2]})
        open_at.append(len(held._open["final", 0]))
    assert open_at == [1, 0] * 10
    wanted = rs.Moments.of(rows, groups=np.arange(40) // 4).groups
    found = held.groups_at("final", 0)
    assert (found.count, found.squares) == (wanted.count, wanted.squares)
    assert_allclose(found.between, wanted.between, rtol=1e-12)


def test_bad_groups_of_texts_are_refused(model, tokenizer):
    with pytest.raises(LabelError, match="one group label per row"):
        lm.class_moments(model, tokenizer, SOME, LABELS, sites=["final"], groups=GROUPS[1:], progress=False)
