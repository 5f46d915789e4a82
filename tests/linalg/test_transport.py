import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from repsurgery.linalg import transport as module
from repsurgery.linalg.spectrum import largest_singular_value, rank_tolerance
from repsurgery.linalg.transport import symmetric_range, transport_matrix, transport_ranges
from tests.strategies import EPS, EXACT, covariance_root, relative

TOLERANCE = (1e-7, 1e-7)


def covariance(seed, d, condition):
    A = covariance_root(np.random.default_rng(seed), d, condition)
    return A @ A.T


def reference(S0, S1):
    """W in 60 digits: Σ₀^-½ (Σ₀^½ Σ₁ Σ₀^½)^½ Σ₀^-½."""
    with mpmath.workdps(60):

        def root(M, power):
            values, V = mpmath.eigsy(M)
            return V * mpmath.diag([v**power for v in values]) * V.T

        M0, M1 = mpmath.matrix(S0.tolist()), mpmath.matrix(S1.tolist())
        half, inverse = root(M0, mpmath.mpf(1) / 2), root(M0, -mpmath.mpf(1) / 2)
        W = inverse * root(half * M1 * half, mpmath.mpf(1) / 2) * inverse
        return np.array(W.tolist(), dtype=float)


@pytest.mark.parametrize(("condition", "error"), [(1e2, 1e-12), (1e4, 1e-11), (1e8, 1e-8), (1e11, 1e-5)])
def test_the_matrix_agrees_with_sixty_digits(condition, error):
    S0, S1 = covariance(0, 10, condition), covariance(1, 10, condition)
    assert relative(transport_matrix(S0, S1, TOLERANCE).weight, reference(S0, S1)) < error


def test_the_symmetric_formula_loses_what_ours_keeps():
    S0, S1 = covariance(0, 10, 1e8), covariance(1, 10, 1e8)
    half = np.real(sqrtm(S0))
    inverse = np.linalg.inv(half)
    plain = inverse @ np.real(sqrtm(half @ S1 @ half)) @ inverse
    truth = reference(S0, S1)
    ours = relative(transport_matrix(S0, S1, TOLERANCE).weight, truth)
    assert relative(plain, truth) > 100 * ours


@given(st.integers(0, 2**32 - 2), st.integers(1, 12))
def test_pencil_and_procrustes_and_ranges_agree(seed, d):
    S0, S1 = covariance(seed, d, 1e3), covariance(seed + 1, d, 1e3)
    R0, R1 = np.linalg.cholesky(S0).T, np.linalg.cholesky(S1).T
    pencil, procrustes = module._by_pencil(S1, R0), module._by_procrustes(R0, R1)
    ranges = transport_ranges(symmetric_range(S0, 1e-7), symmetric_range(S1, 1e-7), dense=True)
    for other in (procrustes, ranges):
        assert relative(other.weight, pencil.weight) < EXACT
        assert other.fidelity == pytest.approx(pencil.fidelity, rel=EXACT)
    W = pencil.weight
    assert relative(W @ S0 @ W.T, S1) < EXACT
    assert relative(W, W.T) < EXACT
    assert np.linalg.eigvalsh((W + W.T) / 2).min() > 0


@given(st.integers(0, 2**32 - 2))
def test_no_other_feasible_matrix_is_cheaper(seed):
    S0, S1 = covariance(seed, 5, 100), covariance(seed + 1, 5, 100)
    W = transport_matrix(S0, S1, TOLERANCE).weight
    rng = np.random.default_rng(seed)
    roots = [np.real(sqrtm(S)) for S in (S0, S1)]

    def cost(M):
        return np.trace((M - np.eye(5)) @ S0 @ (M - np.eye(5)).T)

    for _ in range(5):
        Q, _ = np.linalg.qr(rng.normal(size=(5, 5)))
        other = roots[1] @ Q @ np.linalg.inv(roots[0])
        assert relative(other @ S0 @ other.T, S1) < EXACT
        assert cost(W) < cost(other)
    whiten_recolour = roots[1] @ np.linalg.inv(roots[0])
    assert cost(W) <= cost(whiten_recolour) * (1 + EXACT)


def test_ill_conditioned_pairs_leave_the_pencil():
    calls = []
    original = module._by_procrustes

    def spy(*args):
        calls.append(1)
        return original(*args)

    module._by_procrustes = spy
    try:
        transport_matrix(covariance(0, 8, 1e3), covariance(1, 8, 1e3), TOLERANCE)
        assert not calls
        transport_matrix(covariance(0, 8, 1e9), covariance(1, 8, 1e9), TOLERANCE)
        assert calls
    finally:
        module._by_procrustes = original


def test_the_rank_tolerance_follows_dtype_and_representation():
    assert rank_tolerance("float64", 100, from_scatter=False) == 100 * EPS
    assert rank_tolerance("float64", 100, from_scatter=True) == np.sqrt(100 * EPS)
    assert rank_tolerance("float32", 100, from_scatter=False) == pytest.approx(8 * 2**-23)


@pytest.mark.parametrize("d", [3, 64, 65, 200])
def test_the_gain_is_the_largest_singular_value(d):
    W = np.random.default_rng(d).normal(size=(d, d))
    assert largest_singular_value(W + W.T) == pytest.approx(np.linalg.norm(W + W.T, 2), rel=1e-4)
    assert largest_singular_value(W) == pytest.approx(np.linalg.norm(W, 2), rel=1e-4)
