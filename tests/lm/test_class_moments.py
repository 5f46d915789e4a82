import numpy as np
import pytest

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import BatchHalvedWarning, CacheWarning, LabelError, ParameterError, SurgeryError
from repsurgery.files import Contents, read_file, write_file
from repsurgery.lm.read.class_moments import _Sums
from tests.lm.test_extract import Interrupting
from tests.lm.tiny_models import WIDTH, texts
from tests.lm.tools import DEPTH, assert_close

SOME = texts(60, seed=3)
LABELS = [["rude", "kind"][i % 3 == 0] for i in range(60)]
SITES = ["embeddings", "layers.0", "layers.1.mlp", "final"]


def assert_same(found, expected):
    assert list(found) == list(expected)
    for label in expected:
        assert found[label].count == expected[label].count
        assert_close(found[label].mean, expected[label].mean, rtol=DEPTH)
        assert_close(found[label].covariance, expected[label].covariance, rtol=DEPTH)


@pytest.mark.parametrize("pooling", ["last", "cls", "mean"])
def test_moments_are_those_of_the_extracted_rows(model, tokenizer, pooling):
    found = lm.class_moments(model, tokenizer, SOME, LABELS, sites=SITES, pooling=pooling, progress=False)
    assert list(found) == SITES
    for site in SITES:
        rows = lm.extract(model, tokenizer, SOME, site=site, pooling=pooling, progress=False)
        assert_same(found[site], rs.ClassMoments.of(rows, LABELS))


def test_all_positions_count_once_each(model, tokenizer):
    found = lm.class_moments(model, tokenizer, SOME, LABELS, sites=["final"], pooling="all", progress=False)
    alone = [
        lm.class_moments(model, tokenizer, [text], [label], sites=["final"], pooling="all", progress=False)["final"]
        for text, label in zip(SOME, LABELS, strict=True)
    ]
    total = sum(alone[1:], alone[0])
    assert_same(found["final"], total)
    assert sum(m.count for m in found["final"].values()) == sum(len(tokenizer(t)["input_ids"]) for t in SOME)


def test_one_pass_serves_every_site(model, tokenizer):
    passes = Interrupting(model, stop=None)
    lm.class_moments(model, tokenizer, SOME, LABELS, sites=SITES, batch_size=20, progress=False)
    assert passes.passes == 3


def test_interrupted_moments_go_on_where_they_stopped(model, tokenizer, tmp_path):
    options = {"sites": SITES, "pooling": "all", "batch_size": 10, "progress": False}
    expected = lm.class_moments(model, tokenizer, SOME, LABELS, **options)
    passes = Interrupting(model, stop=5)
    with pytest.raises(KeyboardInterrupt):
        lm.class_moments(model, tokenizer, SOME, LABELS, work_dir=tmp_path, **options)
    passes.remove()
    assert not any(m._forward_hooks for m in model.modules())
    passes = Interrupting(model, stop=None)
    found = lm.class_moments(model, tokenizer, SOME, LABELS, work_dir=tmp_path, **options)
    assert passes.passes == 6 - 4
    for site in SITES:
        assert_same(found[site], expected[site])
    again = lm.class_moments(model, tokenizer, SOME, LABELS, work_dir=tmp_path, **options)
    assert passes.passes == 2
    assert_same(again["final"], expected["final"])
    other = [str(label).upper() for label in LABELS]
    lm.class_moments(model, tokenizer, SOME, other, work_dir=tmp_path, **options)
    assert passes.passes == 2 + 6


@pytest.mark.parametrize(
    ("header", "done"),
    [({}, None), ({"count": 3}, None), ({"count": "60"}, None), ({"count": []}, None), ({"count": 2}, [True, True])],
)
def test_forged_progress_is_read_anew(model, tokenizer, tmp_path, header, done):
    options = {"sites": SITES, "progress": False, "work_dir": tmp_path}
    expected = lm.class_moments(model, tokenizer, SOME, LABELS, **options)
    [path] = tmp_path.rglob("progress.safetensors")
    held = read_file(path)
    arrays = held.arrays if done is None else {"done": np.array(done)}
    write_file(path, Contents(held.kind, header, arrays))
    with pytest.warns(CacheWarning, match="read anew"):
        found = lm.class_moments(model, tokenizer, SOME, LABELS, **options)
    for site in SITES:
        assert_same(found[site], expected[site])


def test_no_more_than_twice_d_rows_are_ever_held():
    sums = _Sums(["final"], ["a"], "float64", 1000, None)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, WIDTH)).astype(np.float32)
    for start in range(0, 1000, 5):
        index = list(range(start, start + 5))
        sums.take(index, np.zeros(5, dtype=np.intp), {"final": rows[index]})
        assert sum(len(part) for parts in sums._rows.values() for part in parts) < 2 * WIDTH
    assert_same(sums.moments()["final"], rs.ClassMoments.of(rows, ["a"] * 1000))


def test_a_batch_added_in_part_is_neither_saved_nor_added_twice(model, tokenizer, tmp_path, monkeypatch):
    options = {"sites": SITES, "pooling": "all", "batch_size": 10, "progress": False, "work_dir": tmp_path}
    flush, calls = _Sums._flush, []

    def fails_once(self, site, code, **how):
        calls.append(site)
        if len(calls) == 20:
            raise MemoryError
        flush(self, site, code, **how)

    with monkeypatch.context() as patch:
        patch.setattr(_Sums, "_flush", fails_once)
        with pytest.warns(BatchHalvedWarning), pytest.raises(SurgeryError, match="Start the call again"):
            lm.class_moments(model, tokenizer, SOME, LABELS, **options)
    found = lm.class_moments(model, tokenizer, SOME, LABELS, **options)
    expected = lm.class_moments(model, tokenizer, SOME, LABELS, **{**options, "work_dir": None})
    for site in SITES:
        assert_same(found[site], expected[site])


def test_moments_fit_an_estimator(model, tokenizer):
    found = lm.class_moments(model, tokenizer, SOME, LABELS, sites=["final"], pooling="all", progress=False)["final"]
    estimator = rs.MeanMatching.from_moments(found, source="rude", target="kind")
    assert_close(estimator.map_.shift, found["kind"].mean - found["rude"].mean, rtol=DEPTH)


def test_bad_input_is_refused(model, tokenizer):
    with pytest.raises(LabelError, match="one label per row"):
        lm.class_moments(model, tokenizer, SOME, LABELS[:-1], sites=["final"], progress=False)
    with pytest.raises(ParameterError, match=r"\['final', 'layers.3'\]"):
        lm.class_moments(model, tokenizer, SOME, LABELS, sites="final", progress=False)
    with pytest.raises(ParameterError, match="pooling"):
        lm.class_moments(model, tokenizer, SOME, LABELS, sites=["final"], pooling="max", progress=False)
