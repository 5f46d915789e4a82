"""Moments of rows as they really are: dependent, constant, sparse and tied columns, above and below d rows."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import qr

import repsurgery as rs
from repsurgery import ClassMoments, Moments
from repsurgery.errors import DataError
from repsurgery.moments import CrossMoments
from repsurgery.moments.sketch import TOLERANCES, directions
from repsurgery.moments.stream import stream_moments
from tests.oracles import exact, two_pass
from tests.strategies import COLUMNS, DEPENDENT, EPS, structured, structured_rows

KINDS = [*COLUMNS, *DEPENDENT]


def rounding(n, d):
    """Return what sums of n products, and a triangular factor of d columns, may lose in units of both columns."""
    return 32 * (n + d) * EPS


def assert_moments(m, mean, scatter, *, slack=1.0, bound=None):
    """Check the moments column by column, so that a small column is as exact as a large one.

    ``bound`` (d,) are the sums of squares that rounding is proportional to, where these are not those of the scatter.
    """
    size = np.sqrt(np.diagonal(scatter) if bound is None else bound)
    tolerance = slack * rounding(m.count, m.dim)
    assert_allclose(m.mean, mean, rtol=4 * EPS, atol=tolerance * size.max(initial=0.0) / np.sqrt(m.weight))
    for j in range(m.dim):
        assert abs(m.mean[j] - mean[j]) <= 4 * EPS * abs(mean[j]) + tolerance * size[j] / np.sqrt(m.weight)
    assert (np.abs(m.scatter - scatter) <= tolerance * np.outer(size, size) + np.finfo(np.float64).tiny).all()


def counted(data, rows=slice(None)):
    """Return the moments of some rows, which may be none."""
    X, w = data.X[rows], None if data.w is None else data.w[rows]
    if not len(X) or (w is not None and not w.any()):
        return Moments.empty(data.X.shape[1])
    return Moments.of(X, sample_weight=w)


@given(structured_rows())
def test_moments_are_those_of_two_passes_on_structured_rows(data):
    m = counted(data)
    assert m.count == (len(data.X) if data.w is None else (data.w > 0).sum())
    assert_moments(m, *two_pass(data.X, data.w))
    assert_allclose(m.variance, np.diagonal(m.covariance), rtol=64 * EPS, atol=0)


@given(structured_rows(max_rows=8, max_d=6))
def test_moments_are_those_of_exact_numbers(data):
    mean, scatter = exact(data.X, data.w)
    assert_moments(counted(data), mean, scatter)


def test_dropping_the_last_row_of_a_triangular_factor_is_wrong_where_columns_depend_on_each_other():
    # the counter-check: what the reflection of the weights replaced is right for independent columns alone
    def dropped(X):
        R = qr(X - X.mean(axis=0), mode="r")[0][: len(X)][:-1]
        return R.T @ R

    rng = np.random.default_rng(0)
    independent = rng.normal(size=(5, 9))
    constant = np.insert(independent, 0, 2.0, axis=1)
    for X, right in ((independent, True), (constant, False)):
        mean, scatter = two_pass(X)
        assert np.allclose(dropped(X), scatter, atol=1e-12) == right
        assert_moments(Moments.of(X), mean, scatter)
    assert_allclose(Moments.of([[5, 0, 0], [5, 1, 0]]).variance, [0, 0.25, 0], rtol=4 * EPS, atol=0)


@given(structured_rows(max_rows=24), st.data())
def test_moments_merged_in_any_order_from_any_parts_are_those_of_all_rows(data, draw):
    n = len(data.X)
    part = draw.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    parts = [np.flatnonzero(np.array(part) == p) for p in draw.draw(st.permutations(range(5)))]
    moments = [counted(data, i) for i in parts]
    whole = counted(data)
    mean, scatter = two_pass(data.X, data.w)
    if draw.draw(st.booleans()):
        merged = reduce(add_all, moments)
    else:  # as a tree
        while len(moments) > 1:
            moments = [add_all(*moments[i : i + 2]) for i in range(0, len(moments), 2)]
        merged = moments[0]
    assert merged.count == whole.count
    assert_moments(merged, mean, scatter, slack=4.0)
    merged.check_sketch()
    assert sum(p.rows for p in merged.ledger.parts) == whole.count


def add_all(a, b=None):
    """Add moments whose rows may be equal by chance, which `+` would warn of."""
    return a if b is None else ClassMoments({0: a}).merge(ClassMoments({0: b}))[0]


@given(structured_rows(min_rows=2, max_rows=24), st.data())
def test_removing_structured_rows_leaves_the_moments_of_the_others(data, draw):
    n = len(data.X)
    go = np.array(draw.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    go[0] = False  # its weight is positive, so that rows remain
    removed = counted(data, go)
    whole = counted(data)
    left = whole - removed
    mean, scatter = two_pass(data.X[~go], None if data.w is None else data.w[~go])
    # a downdate loses what was removed, and √eps of it where few rows remain of many columns
    bound = np.diagonal(two_pass(data.X, data.w)[1])
    assert left.count == whole.count - removed.count
    lost = 64 * data.X.shape[1] * rounding(whole.count, whole.dim)
    size = np.sqrt(bound) if left.factor is None else np.sqrt(bound) + 1e-300
    assert (np.abs(left.scatter - scatter) <= lost * np.outer(size, size) + np.finfo(np.float64).tiny).all()
    assert (np.abs(left.mean - mean) <= 8 * EPS * np.abs(mean) + lost * size).all()
    left.check_sketch()
    if removed.count:
        assert left.ledger.rows == left.count


@given(structured_rows(classes=3, weighted=False, grouped=False, dtypes=(np.float32, np.float64)), st.data())
def test_a_stream_of_structured_rows_has_the_moments_of_each_class(data, draw):
    n = len(data.X)
    cuts = sorted(draw.draw(st.lists(st.integers(0, n), max_size=4)))
    batches = [(data.X[a:b], data.z[a:b]) for a, b in zip([0, *cuts], [*cuts, n], strict=True) if b > a]
    streamed = stream_moments(batches)
    assert streamed.labels == [0, 1, 2]
    for label, m in streamed.items():
        assert_moments(m, *two_pass(data.of(label)[0]))
        m.check_sketch()


@given(structured_rows(classes=3))
def test_classes_of_very_different_size_do_not_disturb_each_other(data):
    moments = ClassMoments.of(data.X, data.z, sample_weight=data.w, groups=data.groups)
    for label, m in moments.items():
        assert_moments(m, *two_pass(*data.of(label)))
    mean, scatter = two_pass(data.X, data.w)
    total = moments.total
    assert_moments(total, mean, scatter, slack=4.0)
    total.check_sketch()


@given(structured_rows(grouped=False), st.integers(1, 3), st.sampled_from([0.0, 0.0, 12.5, 3e5]))
def test_cross_moments_of_structured_rows_are_those_of_two_passes(data, k, offset):
    rng = np.random.default_rng(len(data.X))
    Z = structured(int(rng.integers(2**31)), len(data.X), [str(kind) for kind in rng.choice(KINDS, size=k)])
    X = data.X.astype(np.float64) + offset
    X[0] = np.where(rng.random(X.shape[1]) < 0.2, 1e3 * X[0], X[0])  # far from all other rows, in some columns
    joint = CrossMoments.of(X, Z, sample_weight=data.w)
    both = np.concatenate([X.astype(np.longdouble), Z], axis=1)
    _, scatter = two_pass(both, data.w)
    d = data.X.shape[1]
    size = np.sqrt(np.diagonal(scatter))
    allowed = rounding(*both.shape) * np.outer(size, size)
    assert (np.abs(joint.cross - scatter[:d, d:]) <= allowed[:d, d:] + np.finfo(np.float64).tiny).all()


@pytest.mark.parametrize("seed", range(10))
def test_one_row_far_from_all_others_does_not_cost_the_digits_of_cross_moments(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 60))
    X = structured(seed, n, ["tied", "far", "sparse", "huge", "tiny"])
    X[0] *= 1e3
    Z, w = X[:, :1] + rng.normal(size=(n, 1)), 10.0 ** rng.uniform(-3, 3, n)
    w[0] = 1e-3  # the mean lies far from the first row
    joint = CrossMoments.of(X, Z, sample_weight=w)
    _, scatter = two_pass(np.concatenate([X, Z], axis=1), w)
    size = np.sqrt(np.diagonal(scatter))
    allowed = rounding(n, 6) * np.outer(size[:5], size[5:])
    assert (np.abs(joint.cross - scatter[:5, 5:]) <= allowed).all()
    assert (np.abs(joint.joint[:5] - scatter[:5, 5:] @ directions(1)) <= allowed @ np.abs(directions(1))).all()


@given(structured_rows(min_rows=2, weighted=False, dtypes=(np.float32,)))
def test_products_in_float32_are_as_close_as_float32_is(data):
    X = np.vstack([data.X] * data.X.shape[1]) if len(data.X) < data.X.shape[1] else data.X
    m = Moments.of(X, precision="float32-products")
    _, scatter = two_pass(X)
    size = np.sqrt(np.diagonal(scatter))
    # relative to the shift that the first block has: its mean
    tolerance = 8 * (len(X) + X.shape[1]) * float(np.finfo(np.float32).eps)
    assert (np.abs(m.scatter - scatter) <= tolerance * np.outer(size, size) + 1e-30).all()
    m.check_sketch()


@pytest.mark.parametrize("n", [268, 869, 6000])
def test_units_that_fire_once_are_not_refused_in_float32(n):
    X = structured(0, n, ["one row"] * 40, dtype=np.float32)
    m = Moments.of(X, precision="float32-products")
    lost = np.abs(m.variance * n - m.sketch.squares[:40]) / m.sketch.bound
    # each of the other rows adds less than the last place of the sum and is lost, all in one direction
    assert 1e-6 < lost.max() < TOLERANCES["float32-products"]
    _, scatter = two_pass(X)
    assert (np.abs(np.diagonal(m.scatter - scatter)) <= TOLERANCES["float32-products"] * np.diagonal(scatter)).all()


@pytest.mark.parametrize("exponent", [-440, -300, 300, 450])
@given(structured_rows(max_rows=12, max_d=5, dtypes=(np.float64,), weighted=False))
def test_a_power_of_two_changes_nothing_but_the_scale(exponent, data):
    plain, scaled = Moments.of(data.X), Moments.of(np.ldexp(data.X, exponent))
    assert_array_equal(np.ldexp(scaled.mean, -exponent), plain.mean)
    # products of numbers next to the smallest have fewer digits
    lost = np.ldexp(np.finfo(np.float64).smallest_subnormal * 4 * data.X.size, -2 * exponent)
    assert_allclose(np.ldexp(scaled.scatter, -2 * exponent), plain.scatter, rtol=0, atol=lost)
    scaled.check_sketch()


@given(structured_rows(min_rows=3, max_rows=300, max_d=4, weighted=False), st.sampled_from([1e6, 1e9, 1e12]))
def test_one_heavy_row_does_not_cost_the_digits_of_the_others(data, heavy):
    w = np.ones(len(data.X))
    w[-1] = heavy
    m = Moments.of(data.X, sample_weight=w)
    assert_moments(m, *two_pass(data.X, w))


@given(structured_rows(min_rows=2))
def test_the_root_keeps_the_variance_of_every_column(data):
    m = counted(data)
    R = m.root()
    S = two_pass(data.X, data.w)[1] / m.weight
    scale = np.sqrt(np.diagonal(S))
    # directions below the tolerance of ranks, in units of the columns, may be left out
    lost = rounding(m.count, m.dim) + 4 * m.dim * m.rank_tolerance**2
    assert (np.abs(R.T @ R - S) <= lost * np.outer(scale, scale) + np.finfo(np.float64).tiny).all()


@pytest.mark.parametrize("n", [3, 300], ids=["factor", "dense"])
@pytest.mark.parametrize("sign", [1, -1])
def test_integers_that_float64_cannot_hold_are_refused_with_the_remedy(n, sign):
    X = structured(0, n, ("counts", "tied", "far", "normal"), dtype=np.int64)
    far = X.copy()
    far[:, 1] += sign * (2**53 + 99)
    for refused in (
        lambda: Moments.of(far),
        lambda: stream_moments([(far[: n // 2], np.zeros(n // 2)), (far[n // 2 :], np.zeros(n - n // 2))]),
        lambda: stream_moments([(far, np.zeros(n)), (X.astype(float), np.zeros(n))]),
    ):
        with pytest.raises(DataError, match=r"integers only below 2\^53.*Subtract a whole number from each column"):
            refused()
    # the remedy: the same integers nearer to zero, or numbers that are float64 already
    near = far.copy()
    near[:, 1] -= sign * (2**53 + 99)
    assert np.array_equal(Moments.of(near).scatter, Moments.of(X).scatter)
    Moments.of(far.astype(np.float64))


@given(structured_rows(min_rows=2, weighted=False, grouped=False), st.integers(21, 190))
def test_weights_that_are_nothing_beside_others_are_refused_with_the_remedy(data, power):
    n = len(data.X)
    w = np.full(n, 10.0 ** (power / 2))
    w[n // 2 :] = 10.0 ** (-power / 2 - 2)
    both = [(data.X[half], w[half]) for half in (slice(0, n // 2), slice(n // 2, None))]
    for refused in (
        lambda: Moments.of(data.X, sample_weight=w),
        lambda: reduce(Moments.__add__, [Moments.of(X, sample_weight=v) for X, v in both]),
    ):
        with pytest.raises(DataError, match="Set such weights to 0"):
            refused()
    w[n // 2 :] = 0
    Moments.of(data.X, sample_weight=w).check_sketch()


@given(structured_rows(min_rows=4, weighted=False, grouped=False, dtypes=(np.float64,)), st.integers(6, 12))
def test_a_part_far_heavier_than_what_is_left_is_removed(tmp_path_factory, data, power):
    X, cut = data.X, len(data.X) // 2
    left = Moments.of(X[:cut], sample_weight=np.full(cut, 0.1))
    heavy = Moments.of(X[cut:], sample_weight=np.full(len(X) - cut, 0.3 * 10.0**power))
    path = tmp_path_factory.mktemp("removed") / "m"
    remains = left + heavy - heavy
    remains.check_sketch()
    assert remains.ledger == left.ledger
    rs.save(remains, path)
    rs.load(path).check_sketch()
    (rs.load(path) + heavy).check_sketch()
    # a weight that this rounding does not explain is still named
    assert remains.ledger.rounding <= 1e-14 * heavy.weight
