from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsurgery import ClassMoments, Moments
from repsurgery.errors import DataError, LabelError, ShapeError
from repsurgery.moments import stream
from repsurgery.moments.stream import stream_moments
from tests.moments.test_moments import assert_same
from tests.strategies import relative


def batches(X, z, size):
    return ((X[i : i + size], z[i : i + size]) for i in range(0, len(X), size))


def data(n, d, k, seed=0, dtype="float64"):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 2).astype(dtype), rng.integers(0, k, n)


@given(st.integers(1, 400), st.integers(1, 12), st.integers(1, 4), st.integers(1, 90), st.integers(0, 99))
def test_a_stream_has_the_moments_of_its_rows(n, d, k, size, seed):
    X, z = data(n, d, k, seed)
    block = 1 + seed % 40  # most classes fill several blocks and leave some rows over
    with patch.object(stream, "BLOCK_BYTES", 8 * d * block):
        found, wanted = stream_moments(batches(X, z, size)), ClassMoments.of(X, z)
    assert found.labels == wanted.labels
    for label in wanted:
        assert_same(found[label], wanted[label])
        assert (found[label].factor is None) == (wanted[label].factor is None)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", ">f4"])
def test_the_size_of_the_batches_changes_no_bit(monkeypatch, dtype):
    monkeypatch.setattr(stream, "BLOCK_BYTES", 8 * 7 * 16)
    X, z = data(500, 7, 3)
    X = X.astype(dtype)
    found = [stream_moments(batches(X, z, size)) for size in (1, 13, 500)]
    for label in found[0]:
        for other in found[1:]:
            assert np.array_equal(found[0][label].scatter, other[label].scatter)
            assert np.array_equal(found[0][label].mean, other[label].mean)
        assert found[0][label].dtype == ClassMoments.of(X, z)[label].dtype


def test_rows_that_move_away_from_the_pivot_cost_no_digits(monkeypatch):
    monkeypatch.setattr(stream, "BLOCK_BYTES", 8 * 5 * 32)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3200, 5))
    X[32:] += 1e6  # one block before, a hundred after
    exact = X.astype(np.longdouble)
    exact -= exact.mean(axis=0)
    truth = (exact.T @ exact).astype(np.float64)
    z = np.zeros(len(X), dtype=int)
    assert relative(stream_moments(batches(X, z, 100))[0].scatter, truth) < 1e-15
    apart = relative(stream_moments(batches(X[32:], z[32:], 100))[0].scatter, np.cov(X[32:].T, bias=True) * 3168)
    assert apart < 1e-12
    monkeypatch.setattr(stream, "FAR", np.inf)
    one_pivot = relative(stream_moments(batches(X, z, 100))[0].scatter, truth)
    assert one_pivot > 1e-14


def test_bad_batches_are_refused():
    X, z = data(60, 4, 1)
    with pytest.raises(ShapeError, match="made for 4"):
        stream_moments([(X, z), (X[:, :3], z)])
    with pytest.raises(LabelError, match="one label per row"):
        stream_moments([(X, z[:-1])])
    X[3, 1] = np.nan
    with pytest.raises(DataError, match="NaN or infinity"):
        stream_moments([(X, z)])
    assert len(stream_moments([])) == 0


@given(st.integers(1, 40), st.integers(-1000, -600), st.sampled_from([(0, 1), (3, 4)]))
def test_rows_whose_squares_vanish_are_refused_however_they_come(size, power, values):
    # more than a block of rows, so that most are gone when the variance is known
    X = np.random.default_rng(size).choice(values, size=(120, 3)) * 2.0**power
    z = np.zeros(len(X), dtype=int)
    with patch.object(stream, "BLOCK_BYTES", 8 * 3 * 16):
        for refused in (
            lambda: ClassMoments.of(X, z),
            lambda: stream_moments(batches(X, z, size)),
            lambda: Moments.of(X[:1]) + Moments.of(X[(X[0] != X).any(axis=1)][:1]),
        ):
            with pytest.raises(DataError, match=r"underflowed.*Multiply X by a constant"):
                refused()
        # rows that are equal are no error, and neither are such columns beside others
        flat = np.full_like(X, values[1] * 2.0**power)
        assert not stream_moments(batches(flat, z, size))[0].variance.any()
        assert not (Moments.of(flat[:50]) + Moments.of(flat[50:])).variance.any()
        beside = stream_moments(batches(np.column_stack([X, np.arange(120.0)]), z, size))[0]
        assert beside.variance[3] == pytest.approx((120**2 - 1) / 12)
        beside.check_sketch()


@pytest.mark.parametrize("dtypes", [("f8", "f4"), ("f4", "f8"), ("i8", "f4"), ("f2", "f8"), ("i4", "i8"), ("f8", "i8")])
def test_batches_of_several_dtypes_have_the_dtype_of_their_sum(monkeypatch, dtypes):
    monkeypatch.setattr(stream, "BLOCK_BYTES", 8 * 3 * 16)
    X = np.random.default_rng(0).integers(-50, 50, size=(200, 3))
    parts = [X[:90].astype(dtypes[0]), X[90:].astype(dtypes[1])]
    for order in (1, -1):
        streamed = stream_moments([(part, np.zeros(len(part), int)) for part in parts[::order]])[0]
        added = Moments.of(parts[0]) + Moments.of(parts[1])
        assert streamed.dtype == added.dtype == ("float32" if {"f4", "f2"} & {*dtypes} else "float64")
        assert_same(streamed, added)
