"""Ranks, whitenings and transport of covariances of rows as they really are, against exact numbers."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from repsurgery.linalg.spectrum import largest_singular_value, mirror_upper, rank_tolerance, symmetric_rank
from repsurgery.linalg.transport import (
    PENCIL_CONDITION_LIMIT,
    factor_range,
    symmetric_range,
    transport_factors,
    transport_matrix,
    transport_ranges,
)
from repsurgery.linalg.whitening import by_range, whitening_of
from tests.oracles import two_pass
from tests.strategies import COLUMNS, DEPENDENT, EPS, structured, structured_rows

LIKE = tuple(kind for kind in COLUMNS if kind not in ("tiny", "huge", "nearly constant", "constant", "far"))
"""Kinds of columns that vary by about 1 or not at all, so that each of them counts for the rank."""
WHOLE = ("zero", "counts", "one row", "same", "negative", "double", "sum")
"""Kinds of columns that hold whole numbers, whose rank is known exactly."""


def centred(X, w=None):
    """Return a factor (n, d) of the covariance, from the rows by two passes."""
    mean, scatter = two_pass(X, w)
    weight = len(X) if w is None else w.sum()
    w = np.ones(len(X)) if w is None else w
    return np.sqrt(w / weight)[:, None] * (X - mean), scatter / weight


def exact_rank(X):
    """Return the rank of centred whole rows, by elimination of fractions."""
    total = [sum(int(v) for v in column) for column in X.T]
    rows = [[Fraction(int(v) * len(X) - t) for v, t in zip(row, total, strict=True)] for row in X]
    rank = 0
    for j in range(X.shape[1]):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][j]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for i in range(rank + 1, len(rows)):
            share = rows[i][j] / rows[rank][j]
            rows[i] = [a - share * b for a, b in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank


@given(structured_rows(kinds=WHOLE, weighted=False, grouped=False, dtypes=(np.int64,)))
def test_the_rank_of_whole_rows_is_that_of_fractions(data):
    R, S = centred(data.X.astype(float))
    d, rank = data.X.shape[1], exact_rank(data.X)
    squared = rank_tolerance("float64", d, from_scatter=True)
    assert symmetric_rank(np.linalg.eigvalsh(S), squared) == rank
    for span in (
        symmetric_range(S, squared),
        factor_range(R, rank_tolerance("float64", len(R) + d, from_scatter=False)),
    ):
        assert len(span.scale) == rank
        assert_allclose(span.basis.T @ span.basis, np.eye(rank), atol=32 * d * EPS)
        assert_allclose(
            (span.basis * span.scale**2) @ span.basis.T, S, rtol=0, atol=64 * (d + len(R)) * EPS * np.trace(S)
        )
    # the counter-check: without a tolerance rounding counts as variance
    several = np.repeat(np.arange(5.0)[:, None], 4, axis=1) / 3
    assert (np.linalg.eigvalsh(centred(several)[1]) != 0).sum() > exact_rank(several * 3) == 1


EXACT = 0.0
"""The covariances of these tests are taken as they are: no combination of columns counts as rounding of their rows."""


def least(S):
    """Return the standard deviation (d,) up to which columns count as constant: the rounding of the widest column."""
    return np.full(len(S), EPS * np.sqrt(np.diagonal(S)).max(initial=0.0))


def condition(whitening, scale, S):
    """Return the condition number of the covariance, in units of ``scale``, on the range that a whitening keeps."""
    unit = np.where(scale > 0, scale, 1.0)
    back = np.linalg.norm(whitening.apply(np.diag(unit)), 2) if len(whitening.apply(np.eye(len(S)))) else 0.0
    return max(back**2 * np.linalg.norm(S / unit / unit[:, None], 2), 1.0)


@pytest.mark.parametrize("factor", [False, True])
@given(data=structured_rows(min_rows=2, kinds=(*LIKE, *DEPENDENT)))
def test_whitened_rows_have_the_identity_for_a_covariance(factor, data):
    R, S = centred(data.X.astype(float), data.w)
    n, d = R.shape
    if factor:
        tolerance = rank_tolerance("float64", max(n, d), from_scatter=False)
        whitening = by_range(factor_range(R, tolerance))
        error = 32 * (n + d) * EPS * np.sqrt(condition(whitening, np.ones(d), S))  # the factor is never squared
    else:
        whitening = whitening_of(S.copy(), rank_tolerance("float64", d, from_scatter=True), least(S), EXACT)
        error = 32 * (n + d) * EPS * condition(whitening, np.sqrt(np.diagonal(S)), S)
    U = whitening.apply(R.T)
    assert_allclose(U @ U.T, np.eye(len(U)), atol=error)
    assert whitening.full_rank == (len(U) == d)
    rng = np.random.default_rng(0)
    G, H = rng.normal(size=(d, 3)), rng.normal(size=(len(U), 2))
    size = np.abs(H).T @ np.abs(whitening.apply(np.eye(d))) @ np.abs(G)
    assert (np.abs(H.T @ whitening.apply(G) - whitening.transpose(H).T @ G) <= error * size + EPS).all()


def test_without_whitening_rows_have_another_covariance():
    R, S = centred(structured(0, 40, ("sparse", "counts", "double", "zero")))
    assert np.abs(R.T @ R - np.eye(4)).max() > 0.1
    U = whitening_of(S.copy(), 1e-7, least(S), EXACT).apply(R.T)
    assert_allclose(U @ U.T, np.eye(2), atol=1e-12)


@given(structured_rows(min_rows=2), st.data())
def test_powers_of_two_and_the_order_of_columns_do_not_change_whitened_rows(data, draw):
    R, S = centred(data.X.astype(float), data.w)
    columns = range(len(S))
    powers = np.array([draw.draw(st.integers(-6, 6)) for _ in columns])
    order = draw.draw(st.permutations(columns))
    scale = np.sqrt(np.diagonal(S))
    ratios = scale / max(scale.max(), np.finfo(float).tiny)
    # beside the widest column, one that is narrower than its rounding counts as constant; none is near that limit
    if ((ratios > 2.0**-66) & (ratios < 2.0**-38)).any():
        return
    tolerance = rank_tolerance("float64", len(S), from_scatter=True)
    whitening = whitening_of(S.copy(), tolerance, least(S), EXACT)
    plain = whitening.apply(R.T)
    wider = whitening_of(np.ldexp(S, powers[:, None] + powers), tolerance, np.ldexp(least(S), powers), EXACT)
    assert_array_equal(wider.apply(np.ldexp(R, powers).T), plain)
    moved = whitening_of(S[np.ix_(order, order)].copy(), tolerance, least(S)[order], EXACT).apply(R[:, order].T)
    if len(moved) == len(plain):  # a direction at the limit of the tolerance may fall to either side
        error = 32 * sum(R.shape) * EPS * condition(whitening, np.where(ratios > 2.0**-50, scale, 0.0), S)
        assert_allclose(moved.T @ moved, plain.T @ plain, atol=error)  # a whitening is unique up to a rotation


def pair(data):
    """Return the factors and the covariances of two classes."""
    (R0, S0), (R1, S1) = (centred(X.astype(float), w) for X, w in (data.of(0), data.of(1)))
    return R0, S0, R1, S1


def assert_carries(W, S0, S1, found, tolerance):
    """Check W Σ₀ Wᵀ = Σ₁ up to the directions that the tolerance leaves out."""
    d = len(S0)
    # what is left out of each covariance is at most d tolerance² of its largest eigenvalue; the map takes it along
    gain, wide, aim = max(np.linalg.norm(W, 2), 1.0), np.linalg.norm(S0, 2), np.linalg.norm(S1, 2)
    lost = d * tolerance**2 * (gain**2 * wide + aim)
    rounding = 256 * d * EPS * gain * np.sqrt(wide) * max(np.sqrt(aim), gain * np.sqrt(wide))
    left = np.linalg.norm(W @ S0 @ W.T - S1)
    assert left <= found.discarded * (1 + 1e-6) + 8 * (lost + rounding)
    if found.feasible:
        assert found.discarded == 0


@given(structured_rows(classes=2, min_rows=2, kinds=(*LIKE, *DEPENDENT)))
def test_transport_carries_one_covariance_to_the_other(data):
    R0, S0, R1, S1 = pair(data)
    tolerance = rank_tolerance("float64", len(S0), from_scatter=True)
    found = transport_matrix(S0.copy(), S1.copy(), (tolerance, tolerance))
    assert_carries(found.weight, S0, S1, found, tolerance)
    by_factors = transport_factors(R0, R1, (tolerance, tolerance)) if max(len(R0), len(R1)) < len(S0) else None
    if by_factors is not None:
        W = np.eye(len(S0)) + by_factors.left @ by_factors.right
        assert_carries(W, S0, S1, by_factors, tolerance)
        assert (by_factors.rank_source, by_factors.rank_target) == (found.rank_source, found.rank_target)
        values, r = np.linalg.eigvalsh(S1)[::-1], found.rank_source
        if not found.feasible and r and values[r - 1] - values[r] < 1e-6 * values[0]:
            return  # equal eigenvalues: several approximations of that rank are the best
        assert by_factors.fidelity == pytest.approx(
            found.fidelity, rel=1e-6, abs=1e-6 * np.sqrt(np.trace(S0) * np.trace(S1))
        )


def test_no_other_map_passes_for_transport():
    X = structured(0, 60, ("sparse", "counts", "normal", "tied", "sum"))
    S0, S1 = centred(X[:40])[1], centred(X[40:] * [1, 2, 1, 0.5, 1])[1]
    found = transport_matrix(S0.copy(), S1.copy(), (1e-7, 1e-7))
    assert_carries(found.weight, S0, S1, found, 1e-7)
    for other in (np.eye(5), found.weight * (1 + 1e-6), found.weight[::-1]):
        with pytest.raises(AssertionError):
            assert_carries(other, S0, S1, found, 1e-7)


@given(structured_rows(classes=2, min_rows=2, kinds=(*LIKE, *DEPENDENT)))
def test_what_no_row_shows_is_not_touched(data):
    _, S0, _, S1 = pair(data)
    tolerance = rank_tolerance("float64", len(S0), from_scatter=True)
    source, target = symmetric_range(S0, tolerance), symmetric_range(S1, tolerance)
    W = transport_ranges(source, target, dense=True).weight
    off = np.eye(len(S0)) - source.basis @ source.basis.T
    assert_allclose(W @ off, off, atol=64 * len(S0) * EPS * max(np.linalg.norm(W, 2), 1.0))


def bures(S0, S1):
    """Return tr (Σ₀^½ Σ₁ Σ₀^½)^½ in 60 digits."""
    with mpmath.workdps(60):

        def root(M):
            values, V = mpmath.eigsy(M)
            return V * mpmath.diag([mpmath.sqrt(max(v, mpmath.mpf(0))) for v in values]) * V.T

        half = root(mpmath.matrix(S0.tolist()))
        values = mpmath.eigsy(half * mpmath.matrix(S1.tolist()) * half, eigvals_only=True)
        return float(mpmath.fsum(mpmath.sqrt(max(v, mpmath.mpf(0))) for v in values))


@given(structured_rows(classes=2, min_rows=2, max_rows=16, max_d=4, kinds=(*LIKE, *DEPENDENT)))
def test_the_fidelity_is_that_of_sixty_digits(data):
    _, S0, _, S1 = pair(data)
    tolerance = rank_tolerance("float64", len(S0), from_scatter=True)
    found = transport_matrix(S0.copy(), S1.copy(), (tolerance, tolerance))
    if not found.feasible:
        return  # the fidelity of what is reached, not of the target
    # a direction of relative size √eps in the product of roots is left out or not
    slack = 4 * len(S0) * tolerance * np.sqrt(np.trace(S0) * np.trace(S1))
    assert found.fidelity == pytest.approx(bures(S0, S1), rel=1e-9, abs=slack)
    assert found.fidelity <= np.sqrt(np.trace(S0) * np.trace(S1)) * (1 + 64 * EPS) + 1e-300  # Cauchy–Schwarz


@given(structured_rows(min_rows=2, max_rows=80, max_d=80), st.booleans())
def test_the_gain_is_the_largest_singular_value_of_structured_matrices(data, transposed):
    W = data.X.astype(float).T if transposed else data.X.astype(float)
    side = max(W.shape)
    square = np.zeros((side, side))
    square[: W.shape[0], : W.shape[1]] = W
    for M in (square, square @ square.T):
        assert largest_singular_value(M) == pytest.approx(np.linalg.norm(M, 2), rel=1e-3)


@given(structured_rows(max_rows=12), st.integers(1, 5))
def test_mirroring_copies_every_entry(data, block):
    S = np.triu(data.X.astype(float).T @ data.X.astype(float))
    whole = mirror_upper(S.copy(), block=block)
    assert_array_equal(whole, np.triu(S) + np.triu(S, 1).T)


@given(structured_rows(classes=2, min_rows=8, max_rows=40, max_d=5, kinds=("normal", "tiny", "huge", "zero", "sparse")))
def test_a_wide_column_does_not_hide_the_covariance_of_a_narrow_one(data):
    _, S0, _, S1 = pair(data)
    d = len(S0)
    live = (np.diagonal(S0) > 0) & (np.diagonal(S1) > 0)
    if not live.any() or ((np.diagonal(S0) > 0) != (np.diagonal(S1) > 0)).any():
        return
    scale = np.sqrt([np.diagonal(S)[live] for S in (S0, S1)])
    condition = max(
        np.linalg.cond(S[np.ix_(live, live)] / u / u[:, None]) for S, u in zip((S0, S1), scale, strict=True)
    )
    tolerance = rank_tolerance("float64", d, from_scatter=True)
    if condition * tolerance**2 * 1e4 > 1:
        return  # some column depends on others
    found = transport_matrix(S0.copy(), S1.copy(), (tolerance, tolerance))
    assert (found.rank_source, found.rank_target, found.feasible) == (live.sum(), live.sum(), True)
    W, u = found.weight.astype(np.longdouble), np.sqrt(np.diagonal(S1))
    left = np.abs(W @ S0 @ W.T - S1)
    size = np.outer(u, u)
    if live.all() and np.linalg.cond(S0) * np.linalg.cond(S1) < 2 * PENCIL_CONDITION_LIMIT:
        size = size + np.linalg.norm(S1)  # scales are close, and the pencil is accurate in norm
        assert (left <= 1e-6 * np.outer(u, u)).all()
    assert (left <= 64 * d**2 * EPS * condition * size + np.finfo(float).tiny).all()
    # it is still the cheapest map: its trace with the source is the fidelity
    assert np.abs(np.trace(W @ S0) - found.fidelity) <= 64 * d**2 * EPS * condition * found.fidelity


def test_the_map_of_columns_far_apart_agrees_with_120_digits():
    rng = np.random.default_rng(0)
    scale = np.exp2([0.0, 27.0, -3.0, 23.0, 1.0])  # powers of two, so that the covariances are symmetric to the bit
    S0, S1 = (np.cov(rng.normal(size=(5, 20))) * scale * scale[:, None] for _ in range(2))
    with mpmath.workdps(120):

        def power(M, p):
            values, V = mpmath.eigsy(M)
            return V * mpmath.diag([v**p for v in values]) * V.T

        M0, M1 = (mpmath.matrix(S.tolist()) for S in (S0, S1))
        half, inverse = power(M0, mpmath.mpf(1) / 2), power(M0, -mpmath.mpf(1) / 2)
        exact = inverse * power(half * M1 * half, mpmath.mpf(1) / 2) * inverse
        W = np.array([[float(exact[i, j]) for j in range(5)] for i in range(5)])
    found = transport_matrix(S0.copy(), S1.copy(), (1e-7, 1e-7)).weight
    assert_allclose(found * scale / scale[:, None], W * scale / scale[:, None], atol=1e-12)
