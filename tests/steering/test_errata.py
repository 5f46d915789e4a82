"""The errors in the paper that `docs/maths/errata.md` lists, each beside the corrected statement."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import repsurgery as rs
from tests.strategies import cov, make_concept


def sqrt_and_inverse(S):
    values, V = np.linalg.eigh(S)
    return (V * np.sqrt(values)) @ V.T, (V / np.sqrt(values)) @ V.T


@pytest.fixture
def concept():
    return make_concept(0, d=10, rows=(300, 500))


def cost(W, X):
    C = X - X.mean(0)
    return np.square(C - C @ W.T).sum(axis=1).mean()


def test_the_printed_leace_formula_guards_but_costs_more(concept):
    X, z = concept
    root, inverse = sqrt_and_inverse(cov(X))
    gap = (X[z == 1].mean(0) - X[z == 0].mean(0))[:, None]

    def projector(A):
        return A @ np.linalg.pinv(A)

    printed = np.eye(10) - inverse @ projector(root @ gap) @ root
    orthogonal = np.eye(10) - projector(gap)
    ours = rs.LEACE().fit(X, z)
    for W in (printed, orthogonal, ours.map_.weight):
        assert_allclose(W @ gap, 0, atol=1e-10)
    assert cost(ours.map_.weight, X) == pytest.approx(ours.certificate_.optimal_cost, rel=1e-9)
    assert cost(printed, X) > 1.01 * cost(ours.map_.weight, X)
    assert cost(orthogonal, X) > 1.01 * cost(ours.map_.weight, X)
    closed = np.eye(10) - gap @ gap.T @ np.linalg.inv(cov(X)) / (gap.T @ np.linalg.inv(cov(X)) @ gap)
    assert_allclose(ours.map_.weight, closed, atol=1e-10)


def test_leace_never_beats_the_eraser_that_knows_the_label(concept):
    X, z = concept
    means = np.array([X[z == c].mean(0) for c in (0, 1)])
    oracle = X - means[z] + X.mean(0)
    assert np.square(X - oracle).sum(axis=1).mean() < rs.LEACE().fit(X, z).certificate_.cost


def test_the_printed_rank_deficient_family_violates_its_constraint():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(8, 5)))[0]
    S0 = basis @ np.diag(np.arange(1.0, 6)) @ basis.T
    off_range = np.eye(8) - basis @ basis.T
    Y = rng.normal(size=(8, 8))
    printed, corrected = np.eye(8) + off_range @ Y, np.eye(8) + Y @ off_range
    assert np.linalg.norm(printed @ S0 - S0) > 1
    assert_allclose(corrected @ S0, S0, atol=1e-12)
    source = rng.normal(size=(200, 5)) * np.sqrt(np.arange(1.0, 6)) @ basis.T
    est = rs.MiMiC().fit(np.vstack([source, source + 1]), np.repeat([0, 1], 200))
    # equal covariances: the optimum is mean matching, found here without being told, unseen directions included
    assert_allclose(est.map_.weight, np.eye(8), atol=1e-10)
    assert est.certificate_.by_source[0].rank_source == 5


def test_the_printed_covariance_constraint_is_the_reverse_one(concept):
    X, z = concept
    S0, S1 = cov(X[z == 0]), cov(X[z == 1])
    W = rs.MiMiC().fit(X, z).map_.weight
    assert_allclose(W @ S0 @ W.T, S1, atol=1e-10)
    assert np.linalg.norm(W @ S1 @ W.T - S0) > 0.1 * np.linalg.norm(S0)


def test_the_constraints_alone_do_not_determine_the_map(concept):
    X, z = concept
    S0, S1 = cov(X[z == 0]), cov(X[z == 1])
    (_, whiten), (recolour, _) = sqrt_and_inverse(S0), sqrt_and_inverse(S1)
    cholesky = np.linalg.cholesky(S1) @ np.linalg.inv(np.linalg.cholesky(S0))
    W = rs.MiMiC().fit(X, z).map_.weight
    for other in (recolour @ whiten, cholesky, -W):
        assert_allclose(other @ S0 @ other.T, S1, atol=1e-10)
        assert cost(other, X[z == 0]) > 1.001 * cost(W, X[z == 0])
    midpoint = (W + -W) / 2
    assert np.linalg.norm(midpoint @ S0 @ midpoint.T - S1) == pytest.approx(np.linalg.norm(S1))
