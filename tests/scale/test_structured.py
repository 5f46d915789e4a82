"""Shards of structured rows, counted in one process or merged from files, have the moments of all rows."""

import shutil
import tempfile
import warnings
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from repsurgery import ClassMoments
from repsurgery.errors import DuplicateWarning, LedgerError, NonFiniteWarning, ShapeError
from repsurgery.scale import LocalEngine, Schema, Shard, count_shard, find_shards, merge_files, reduce_shards
from tests.oracles import two_pass
from tests.strategies import EPS, Structured, share, structured_rows

FEW = {"max_rows": 24, "max_d": 6, "weighted": False, "grouped": False, "min_rows": 1}
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Held(Shard):
    """A shard whose rows are in memory."""

    number: int
    X: np.ndarray
    z: np.ndarray

    @property
    def name(self):
        return f"shard {self.number:03}"

    def schema(self):
        return Schema(len(self.X), self.X.shape[1], str(self.X.dtype), "number")

    def fingerprint(self):
        return {"number": self.number}

    def batches(self, rows):
        for start in range(0, len(self.X), rows):
            yield self.X[start : start + rows], self.z[start : start + rows]


def shards_of(data, cuts):
    edges = [0, *sorted(set(cuts)), len(data.X)]
    pieces = [slice(a, b) for a, b in pairwise(edges) if b > a]
    return [Held(i, data.X[piece], data.z[piece]) for i, piece in enumerate(pieces)]


def reduced(shards, **options):
    """Return what one process counts, in a folder of its own; rows that are equal by chance are no concern here."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", DuplicateWarning)
        return reduce_shards(shards, work_dir=Path(folder) / "work", engine=LocalEngine(workers=1), **options)


def assert_all_rows(moments, data, keep=None):
    """Check count, mean, scatter, sketch and ledger of each class against two passes over all its rows."""
    keep = np.ones(len(data.X), bool) if keep is None else keep
    n, d = data.X.shape
    assert moments.labels == sorted(set(data.z[keep]))
    for label, m in moments.items():
        X = data.X[keep & (data.z == label)]
        mean, scatter = two_pass(X)
        assert (m.count, m.weight) == (len(X), len(X))
        size = np.sqrt(np.diagonal(scatter))
        tolerance = 256 * (n + d) * EPS
        assert (np.abs(m.scatter - scatter) <= tolerance * np.outer(size, size) + TINY).all()
        assert (np.abs(m.mean - mean) <= 8 * EPS * np.abs(mean) + tolerance * size / np.sqrt(len(X)) + TINY).all()
        assert m.sketch is not None
        m.check_sketch()
        assert m.ledger.rows == len(X)


@share(0.3)
@given(structured_rows(classes=3, **FEW), st.data())
def test_reduced_shards_are_all_rows_with_sketch_and_ledger(data, draw):
    cuts = draw.draw(st.lists(st.integers(1, len(data.X)), max_size=12))
    shards = shards_of(data, cuts)
    found = reduced(draw.draw(st.permutations(shards)), batch_rows=draw.draw(st.sampled_from([None, 1, 2, 5])))
    assert found.rows == len(data.X)
    assert_all_rows(found.moments, data)
    again = reduced(shards)
    for label, m in found.moments.items():  # neither the order of the shards nor the batches change a bit
        assert_array_equal(again.moments[label].scatter, m.scatter)
        assert_array_equal(again.moments[label].mean, m.mean)
        assert again.moments[label].ledger == m.ledger


@share(0.3)
@given(structured_rows(classes=2, **FEW), st.data())
def test_every_order_and_tree_of_parts_gives_all_rows(data, draw):
    cuts = draw.draw(st.lists(st.integers(1, len(data.X)), max_size=6))
    parts = [count_shard(shard).moments for shard in draw.draw(st.permutations(shards_of(data, cuts)))]
    assert_all_rows(reduce(ClassMoments.merge, parts), data)
    while len(parts) > 1:
        parts = [reduce(ClassMoments.merge, parts[i : i + 2]) for i in range(0, len(parts), 2)]
    assert_all_rows(parts[0], data)


@share(0.3)
@given(structured_rows(classes=2, dtypes=(np.float64, np.float32), **FEW), st.data())
def test_rows_that_are_left_out_leave_the_moments_of_the_others(data, draw):
    n = len(data.X)
    bad = np.array(draw.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    for label in (0, 1):
        bad[np.flatnonzero(data.z == label)[0]] = False
    X = data.X.copy()
    X[bad, draw.draw(st.integers(0, X.shape[1] - 1))] = draw.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    shards = shards_of(data._replace(X=X), draw.draw(st.lists(st.integers(1, n), max_size=4)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonFiniteWarning)
        found = reduced(shards, skip_non_finite=True)
    assert (found.rows, found.non_finite) == (n, bad.sum())
    assert_all_rows(found.moments, data, keep=~bad)


@share(0.3)
@given(structured_rows(classes=2, **FEW), st.data())
def test_files_from_two_machines_are_all_rows(data, draw):
    shards = shards_of(data, draw.draw(st.lists(st.integers(1, len(data.X)), min_size=1, max_size=6)))
    first = draw.draw(st.integers(0, len(shards)))
    if any(np.array_equal(a.X, b.X) and np.array_equal(a.z, b.z) for a in shards[:first] for b in shards[first:]):
        return  # files that share a shard are refused
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        halves = [part for part in (shards[:first], shards[first:]) if part]
        for i, part in enumerate(halves):
            reduced(part).save(here / f"{i}")
        if len(halves) == 1:
            assert_all_rows(ClassMoments.load(here / "0"), data)
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DuplicateWarning)
            merged = merge_files([here / "0", here / "1"], here / "both")
        assert_all_rows(merged, data)
        assert_all_rows(ClassMoments.load(here / "both"), data)


def test_a_shard_that_is_missing_from_the_sum_is_seen():
    # the counter-check: without one shard neither the moments nor the ledger are those of all rows
    rng = np.random.default_rng(0)
    shards = [Held(i, rng.poisson(0.4, (8, 4)).astype(float), np.arange(8) % 2) for i in range(4)]
    data = structured_all(shards)
    assert_all_rows(reduced(shards).moments, data)
    with pytest.raises(AssertionError):
        assert_all_rows(reduced(shards[1:]).moments, data)
    whole, part = reduced(shards).moments[0], reduced(shards[1:]).moments[0]
    with pytest.raises(LedgerError):
        replace(whole, ledger=part.ledger).check_sketch()


def structured_all(shards):
    X, z = (np.concatenate([getattr(shard, name) for shard in shards]) for name in ("X", "z"))
    return Structured(X, z, None, None, ())


def test_shards_of_other_width_and_kind_are_refused_before_any_work(tmp_path):
    rows = np.ones((4, 3))
    shards = [Held(0, rows, np.arange(4) % 2), Held(1, rows[:, :2], np.arange(4) % 2)]
    with pytest.raises(ShapeError, match="differ in width"):
        reduce_shards(shards, work_dir=tmp_path / "work", engine=LocalEngine(workers=1))
    assert not (tmp_path / "work").exists()


def test_integer_shards_on_disk_are_counted_as_numbers(tmp_path):
    rng = np.random.default_rng(0)
    X, z = rng.poisson(0.4, (40, 5)), rng.integers(0, 2, 40)
    for i in range(4):
        np.save(tmp_path / f"x{i}.npy", X[i::4])
        np.save(tmp_path / f"z{i}.npy", z[i::4])
    shards = find_shards([f"{tmp_path}/x*.npy"], labels=[f"{tmp_path}/z*.npy"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DuplicateWarning)
        found = reduce_shards(shards, work_dir=tmp_path / "work", engine=LocalEngine(workers=1)).moments
    for label in (0, 1):
        mean, scatter = two_pass(X[z == label])
        assert np.abs(found[label].scatter - scatter).max() < 1e-12
        assert np.abs(found[label].mean - mean).max() < 1e-14
    shutil.rmtree(tmp_path / "work")
