from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from repsurgery import ClassMoments, Moments, load, save
from repsurgery.errors import (
    DataError,
    DuplicateWarning,
    FileFormatError,
    LabelError,
    ParameterError,
    ShapeError,
    SurgeryError,
)
from tests.strategies import EPS, concepts, cov, make_concept, relative

ROUNDING = 200 * EPS
"""Sums of at most a few hundred terms, each rounded once."""


def assert_same(a: Moments, b: Moments, *, rtol=ROUNDING):
    assert a.count == b.count
    assert a.weight == pytest.approx(b.weight, rel=rtol)
    scale = np.sqrt(b.trace) + np.abs(b.mean).max()
    assert_allclose(a.mean, b.mean, rtol=0, atol=rtol * scale)
    assert_allclose(a.scatter, b.scatter, rtol=0, atol=rtol * max(np.trace(b.scatter), EPS * b.weight * scale**2))


@given(concepts(classes=1), st.data())
def test_splitting_the_rows_never_changes_their_moments(concept, data):
    cut = data.draw(st.integers(0, len(concept.X)))
    order = np.random.default_rng(cut).permutation(len(concept.X))
    shuffled = concept.X[order]
    parts = [Moments.of(part) for part in (shuffled[:cut], shuffled[cut:]) if len(part)]
    merged = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    assert_same(merged, Moments.of(concept.X))


@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_fewer_rows_than_dimensions_keep_a_triangular_factor(n, seed):
    X = np.random.default_rng(seed).normal(size=(n, 31)) + 3
    m = Moments.of(X)
    assert m.dense is None
    assert m.factor.shape == (n - 1, 31)
    assert_allclose(np.tril(m.factor, -1), 0, atol=0)
    assert_allclose(m.covariance, cov(X), atol=ROUNDING * 10)
    assert Moments.of(np.vstack([X] * 32)).factor is None


def test_a_factor_holds_no_row():
    X = np.random.default_rng(0).normal(size=(5, 20))
    m = Moments.of(X)
    rows = np.vstack([m.mean, m.factor])
    directions = rows / np.maximum(np.linalg.norm(rows, axis=1), EPS)[:, None]
    centred = X - X.mean(axis=0)
    for original in np.vstack([X, centred]):
        assert np.abs(directions @ (original / np.linalg.norm(original))).max() < 0.99


@given(st.integers(2, 40), st.integers(1, 39), st.integers(0, 2**32 - 1))
def test_factors_merge_like_scatters(n, cut, seed):
    X = np.random.default_rng(seed).normal(size=(n, 12)) - 4
    cut = min(cut, n - 1)
    merged = Moments.of(X[:cut]) + Moments.of(X[cut:])
    assert (merged.factor is not None) == (n < 12)
    assert_same(merged, Moments.of(X))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rows", [20, 5000])
def test_an_offset_of_a_million_costs_no_digits(dtype, rows):
    rng = np.random.default_rng(1)
    X = (rng.normal(size=(rows, 40)) + 1e6).astype(dtype)
    exact = X.astype(np.longdouble)
    exact = exact - exact.mean(axis=0)
    truth = (exact.T @ exact / rows).astype(np.float64)
    assert relative(Moments.of(X).covariance, truth) < 1e-12
    parts = [Moments.of(part) for part in np.array_split(X, 3)]
    assert relative(sum(parts[1:], parts[0]).covariance, truth) < 1e-14
    assert relative((sum(parts[1:], parts[0]) - parts[1] + parts[1]).covariance, truth) < 1e-12
    # a mean rounded at 1e6 · EPS = 2e-10 enters every merge
    rounded = [replace(part, residue=None) for part in parts]
    assert relative(sum(rounded[1:], rounded[0]).covariance, truth) > 1e-13
    naive = X.astype(np.float64).T @ X.astype(np.float64) / rows - np.outer(X.mean(0), X.mean(0))
    assert relative(naive, truth) > 1e-6


@given(concepts(classes=2), st.booleans())
def test_removing_rows_undoes_adding_them(concept, small):
    stay, go = concept.of(0), concept.of(1)
    if small:
        d = concept.X.shape[1] + 12
        stay, go = (np.pad(part[:5], ((0, 0), (0, d - part.shape[1]))) for part in (stay, go))
    whole = Moments.of(np.vstack([stay, go]))
    left = whole - Moments.of(go)
    kept = Moments.of(stay)
    assert left.count == kept.count
    assert (left.factor is None) == (kept.factor is None)
    scale = np.trace(whole.scatter)
    assert_allclose(left.scatter, kept.scatter, rtol=0, atol=100 * EPS * scale)
    assert_allclose(left.mean, kept.mean, rtol=0, atol=100 * EPS * (np.abs(whole.mean).max() + np.sqrt(scale)))


def test_removal_from_many_rows_down_to_few_is_a_factor_again():
    X = np.random.default_rng(0).normal(size=(40, 15))
    left = Moments.of(X) - Moments.of(X[6:])
    assert left.factor is not None
    assert left.factor.shape[0] <= 6
    assert_same(left, Moments.of(X[:6]), rtol=1e-12)


def test_removing_everything_leaves_the_empty_statistic():
    X = np.random.default_rng(0).normal(size=(9, 4))
    assert (Moments.of(X) - Moments.of(X)).count == 0
    assert "b" not in ClassMoments.of(X, ["a"] * 5 + ["b"] * 4) - ClassMoments.of(X[5:], ["b"] * 4)


@pytest.mark.parametrize("rows", [30, 6])
def test_removing_rows_that_were_never_added_is_refused(rows):
    rng = np.random.default_rng(0)
    m = Moments.of(rng.normal(size=(rows, 10)))
    with pytest.raises(SurgeryError, match="added before"):
        m - Moments.of(100 * rng.normal(size=(4, 10)))
    with pytest.raises(SurgeryError, match="Cannot remove"):
        m - Moments.of(rng.normal(size=(rows + 1, 10)))
    with pytest.raises(SurgeryError, match="the means differ: the removed rows are not the rows that were added"):
        m - Moments.of(rng.normal(size=(rows, 10)) + 9)


@given(st.integers(0, 2**32 - 1), st.sampled_from([4, 60]))
def test_a_weight_counts_a_row_that_often(seed, n):
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, 7)) + 2, rng.integers(0, 4, n)
    w[0] = 2
    weighted, repeated = Moments.of(X, sample_weight=w), Moments.of(np.repeat(X, w, axis=0))
    assert weighted.weight == repeated.weight
    assert weighted.count == (w > 0).sum()
    assert_allclose(weighted.mean, repeated.mean, atol=ROUNDING * 10)
    assert_allclose(weighted.scatter, repeated.scatter, atol=ROUNDING * np.trace(repeated.scatter) + ROUNDING)


def test_float32_products_are_recorded_and_close():
    X = make_concept(0, d=48, rows=(4000,), dtype=np.float32).X
    fast, exact = Moments.of(X, precision="float32-products"), Moments.of(X)
    assert (fast.precision, exact.precision, fast.dtype) == ("float32-products", "float64", "float32")
    assert 0 < relative(fast.covariance, exact.covariance) < 2e-6
    with pytest.warns(DuplicateWarning, match="rows are counted twice"):
        assert (fast + exact).precision == "float32-products"


@pytest.mark.parametrize("scale", [1e-20, 1e20])
@pytest.mark.parametrize("precision", ["float64", "float32-products"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scales_far_from_one_are_served(scale, precision, dtype):
    X = np.random.default_rng(0).normal(size=(300, 8))
    m = Moments.of((X * scale).astype(dtype), precision=precision)
    assert relative(m.covariance / scale**2, cov(X)) < 1e-6


def test_squares_beyond_float64_are_refused():
    with pytest.raises(DataError, match="Divide X by a constant"):
        Moments.of(np.random.default_rng(0).normal(size=(30, 3)) * 1e200)


@given(concepts(classes=3), st.integers(1, 20))
def test_merging_classes_equals_fitting_at_once(concept, cut):
    X, z = concept
    parts = ClassMoments.of(X[:cut], z[:cut]) + ClassMoments.of(X[cut:], z[cut:])
    whole = ClassMoments.of(X, z)
    assert parts.labels == whole.labels == [0, 1, 2]
    for label in whole:
        assert_same(parts[label], whole[label])
    assert_same(whole.total, Moments.of(X))
    assert_same(ClassMoments.of(X[:cut], z[:cut]).update(X[cut:], z[cut:])[1], whole[1])


def test_updating_returns_a_new_value():
    X, z = make_concept(0)
    m = ClassMoments.of(X[:20], z[:20])
    before = m.total.count
    assert m.update(X[20:], z[20:]).total.count == len(X)
    assert m.total.count == before
    with pytest.raises(ValueError, match="read-only"):
        m.total.mean[0] = 1.0


@pytest.mark.parametrize("labels", [["a", "b"], [True, False], [3, 7], [0.0, 1.0]])
@pytest.mark.parametrize("d", [4, 30])
def test_moments_survive_a_file_bit_for_bit(tmp_path, labels, d):
    X, z = make_concept(0, d=d, rows=(9, 9))
    m = ClassMoments.of(X.astype(np.float32), np.array(labels)[z], precision="float64")
    m.save(tmp_path / "m.safetensors")
    back = ClassMoments.load(tmp_path / "m.safetensors")
    assert back.labels == m.labels == sorted(labels)
    for label in m:
        for name in ("count", "weight", "dtype", "precision"):
            assert getattr(back[label], name) == getattr(m[label], name)
        assert (back[label].mean == m[label].mean).all()
        assert (back[label].scatter == m[label].scatter).all()


def test_bad_requests_say_what_to_do():
    X, z = make_concept(0)
    m = ClassMoments.of(X, z)
    with pytest.raises(ParameterError, match="float32-products"):
        ClassMoments.of(X, z, precision="half")
    with pytest.raises(LabelError, match="classes are"):
        m["c"]
    with pytest.raises(LabelError, match="one type"):
        m + ClassMoments.of(X, np.where(z, "a", "b"))
    with pytest.raises(ShapeError, match="cannot be combined"):
        m + ClassMoments.of(X[:, :2], z)
    with pytest.raises(DataError, match="row 3, column 1"):
        bad = X.copy()
        bad[3, 1] = np.nan
        ClassMoments.of(bad, z)
    with pytest.raises(DataError, match="negative or non-finite"):
        ClassMoments.of(X, z, sample_weight=-np.ones(len(X)))
    with pytest.raises(DataError, match="zeros only"):
        ClassMoments.of(X, z, sample_weight=np.zeros(len(X)))
    with pytest.raises(ShapeError, match="sample_weight of shape"):
        ClassMoments.of(X, z, sample_weight=[1.0])
    with pytest.raises(DataError, match="no rows yet"):
        _ = ClassMoments().dim


@pytest.mark.parametrize("rows", [5, 50])
def test_the_moments_of_one_set_survive_a_file_too(tmp_path, rows):
    m = Moments.of(np.random.default_rng(0).normal(size=(rows, 12)) + 4)
    m.save(tmp_path / "m")
    save(m, tmp_path / "again")
    for back in (Moments.load(tmp_path / "m"), load(tmp_path / "again")):
        assert isinstance(back, Moments)
        assert (back.count, back.weight) == (m.count, m.weight)
        assert (back.mean == m.mean).all()
        assert (back.scatter == m.scatter).all()
    with pytest.raises(FileFormatError, match=r"not .class-moments."):
        ClassMoments.load(tmp_path / "m")


def test_bytes_travel_as_files_do(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 5))
    moments = ClassMoments.of(X, np.arange(60) % 2)
    data = moments.to_bytes()
    (tmp_path / "m").write_bytes(data)
    for again in (ClassMoments.from_bytes(data), ClassMoments.load(tmp_path / "m")):
        assert all(np.array_equal(again[label].scatter, m.scatter) for label, m in moments.items())
    flipped = bytearray(data)
    flipped[-9] ^= 1
    for bad, words in (
        (bytes(flipped), "altered"),
        (data[:-9], "truncated"),
        (b"noise" * 9, "truncated"),
        (b"", "trunc"),
    ):
        with pytest.raises(FileFormatError, match=words):
            ClassMoments.from_bytes(bad)


@pytest.mark.parametrize("d", [3, 40])
def test_a_removal_that_leaves_a_variance_just_below_zero_is_refused(d):
    # the last column of a is constant, that of b varies by 1e-5: far above rounding, though tiny beside the rest
    rows = np.random.default_rng(0).normal(size=(20, d))
    rows[:, -1] = 0
    strangers = rows[:6].copy()
    strangers[:, -1] = 1e-5 * np.array([1, -1, 1, -1, 1, -1])
    with pytest.raises(SurgeryError, match="negative variance"):
        Moments.of(rows) - Moments.of(strangers)
    assert (Moments.of(rows) - Moments.of(rows[:6])).count == 14
