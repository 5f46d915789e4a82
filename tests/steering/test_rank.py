"""Rank deficiency (docs/maths/rank.md): feasible cases are exact, infeasible ones as close as any affine map."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import repsurgery as rs
from repsurgery.errors import GainWarning, InfeasibleWarning
from tests.strategies import EXACT, cov, make_concept, relative


def low_rank_rows(rng, n, d, rank, basis=None):
    """Return n rows whose covariance has exactly this rank, spanning ``basis`` (d, rank) or a random one."""
    basis = np.linalg.qr(rng.normal(size=(d, rank)))[0] if basis is None else basis
    return rng.normal(size=(n, rank)) * np.linspace(1, 2, rank) @ basis.T + rng.normal(size=d)


def fit(source, target, **params):
    X, z = np.vstack([source, target]), np.repeat([0, 1], [len(source), len(target)])
    return rs.MiMiC(**params).fit(X, z)


def bures(S0, S1):
    def factor(S):
        values, V = np.linalg.eigh(S)
        return V * np.sqrt(np.maximum(values, 0))

    return np.trace(S0) + np.trace(S1) - 2 * np.linalg.svd(factor(S0).T @ factor(S1), compute_uv=False).sum()


@pytest.mark.parametrize("few", [False, True])
@given(r0=st.integers(1, 10), r1=st.integers(1, 10), seed=st.integers(0, 2**32 - 1))
def test_rank_deficiency_is_exact_where_feasible(few, r0, r1, seed):
    r0, r1 = max(r0, r1), min(r0, r1)
    rng = np.random.default_rng(seed)
    d, n = (40, 14) if few else (12, 60)
    source, target = low_rank_rows(rng, n, d, r0), low_rank_rows(rng, n + 1, d, r1)
    est = fit(source, target)
    record = est.certificate_.by_source[0]
    assert (record.rank_source, record.rank_target, record.feasible) == (r0, r1, True)
    assert relative(cov(est.map_(source)), cov(target)) < EXACT
    optimum = bures(cov(source), cov(target)) + np.square(source.mean(0) - target.mean(0)).sum()
    assert est.certificate_.cost == pytest.approx(optimum, rel=1e-7, abs=1e-9)
    assert est.certificate_.optimal_cost == pytest.approx(optimum, rel=1e-7, abs=1e-9)
    assert isinstance(est.map_, rs.LowRank) == few


def test_where_ranges_do_not_meet_the_optimum_is_not_symmetric():
    # Σ₀ = diag(1,1,0,0), Σ₁ = diag(0,1,1,0): primal and dual formulas both miss by 1
    corners = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    source, target = np.zeros((4, 4)), np.zeros((4, 4))
    source[:, :2], target[:, 1:3] = corners, corners
    est = fit(source, target)
    assert_allclose(cov(est.map_(source)), np.diag([0, 1, 1, 0]), atol=1e-12)
    assert est.certificate_.cost == pytest.approx(2.0)
    assert np.abs(est.map_.weight - est.map_.weight.T).max() > 0.5
    S0, S1 = np.diag([1.0, 1, 0, 0]), np.diag([0, 1.0, 1, 0])
    primal = S0 @ np.sqrt(S0 @ S1 @ S0) @ S0
    assert np.abs(primal @ S0 @ primal.T - S1).max() == 1


@pytest.mark.parametrize(("d", "n0", "n1"), [(60, 30, 40), (100, 30, 40), (20, 12, 90)])
def test_infeasible_ranks_attain_the_smallest_residual(d, n0, n1):
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(n0, d)), rng.normal(size=(n1, d)) * np.linspace(0.5, 2, d)
    with pytest.warns(InfeasibleWarning, match="Add source rows"):
        est = fit(source, target)
    certificate = est.certificate_
    S1 = cov(target)
    discarded = np.linalg.eigvalsh(S1)[: d - (n0 - 1)]
    best = np.linalg.norm(discarded) / np.linalg.norm(S1)
    assert not certificate.feasible
    assert relative(cov(est.map_(source)), S1) == pytest.approx(best, rel=1e-9)
    assert certificate.covariance_gap == pytest.approx(best, rel=1e-9)
    assert certificate.residual_bound == pytest.approx(best, rel=1e-9)
    assert certificate.cost == pytest.approx(certificate.optimal_cost, rel=1e-9)
    values, V = np.linalg.eigh(cov(source))
    pinv_root = (V * np.where(values > 1e-10, np.maximum(values, 1e-300) ** -0.5, 0)) @ V.T
    root = (V * np.sqrt(np.maximum(values, 0))) @ V.T
    inner, U = np.linalg.eigh(root @ S1 @ root)
    primal = pinv_root @ ((U * np.sqrt(np.maximum(inner, 0))) @ U.T) @ pinv_root
    assert relative(primal @ cov(source) @ primal.T, S1) > best


@pytest.mark.parametrize("d", [40, 15])
def test_unseen_directions_are_left_untouched(d):
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.normal(size=(d, 6)))[0]
    source, target = low_rank_rows(rng, 20, d, 6, basis), low_rank_rows(rng, 20, d, 4, basis[:, :4])
    W = fit(source, target).map_.weight
    unseen = np.linalg.svd(basis.T)[2][6:]
    assert_allclose(unseen @ W.T, unseen, atol=1e-10)
    assert np.abs(basis.T @ W.T - basis.T).max() > 0.1


def test_nothing_blows_up_on_held_out_data():
    rng = np.random.default_rng(0)
    d = 60
    A = rng.normal(size=(d, d)) / np.sqrt(d)
    source, target, fresh = (rng.normal(size=(n, d)) @ A for n in (30, 40, 2000))
    with pytest.warns(InfeasibleWarning):
        ours = fit(source, target)
    truth = np.trace(cov(fresh))
    assert ours.certificate_.gain < 100
    assert np.trace(cov(ours.map_(fresh))) < 3 * truth
    with pytest.warns(GainWarning, match="oas"):
        ridged = fit(source, target, shrinkage="ridge", ridge=1e-7)
    assert ridged.certificate_.gain > 1000
    assert np.trace(cov(ridged.map_(fresh))) > 1000 * truth


@pytest.mark.parametrize("shrinkage", ["ridge", "relative-ridge", "oas"])
@pytest.mark.parametrize("rows", [(10, 14), (200, 150)])
def test_shrinkage_moves_what_the_ridge_identity_says(shrinkage, rows):
    X, z = make_concept(1, d=30, rows=rows)
    est = rs.MiMiC(shrinkage=shrinkage, ridge=1e-2, gate="nearest-mean").fit(X, z)
    certificate = est.certificate_
    assert certificate.covariance_gap == pytest.approx(certificate.shrinkage_moved, rel=1e-6)
    assert certificate.covariance_gap > 1e-3
    assert certificate.feasible
    assert certificate.shrinkage == shrinkage
    if shrinkage == "ridge":
        W, S0, S1 = est.map_.weight, cov(X[z == 0]), cov(X[z == 1])
        assert_allclose(W @ S0 @ W.T - S1, 1e-2 * (np.eye(30) - W @ W.T), atol=1e-10)


@pytest.mark.parametrize("shrinkage", ["ridge", "relative-ridge", "oas", "none"])
def test_few_rows_give_the_same_map_implicitly_as_densely(shrinkage):
    X, z = make_concept(2, d=40, rows=(12, 15), offset=3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleWarning)
        implicit = rs.MiMiC(shrinkage=shrinkage, ridge=1e-2).fit(X, z).map_
        # padding with weightless copies would change nothing; weights of 1/4 on four copies make the same moments dense
        dense = rs.MiMiC(shrinkage=shrinkage, ridge=1e-2)
        dense.fit(np.repeat(X, 4, axis=0), np.repeat(z, 4), sample_weight=np.full(4 * len(z), 0.25))
    assert isinstance(implicit, rs.LowRank)
    assert isinstance(dense.map_, rs.Dense)
    assert_allclose(implicit.weight, dense.map_.weight, atol=1e-6)
    assert_allclose(implicit.bias, dense.map_.bias, atol=1e-5)


def test_no_dense_matrix_is_made_for_few_rows():
    d = 20_000
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(24, d)).astype(np.float32), np.repeat([0, 1], 12)
    for estimator in (rs.MiMiC, rs.LEACE, rs.MeanMatching, rs.MidSteer):
        est = estimator().fit(X, z)  # a d × d matrix would need 3 GB
        assert est.certificate_.mean_gap < 1e-9
        assert est.transform(X).shape == X.shape
    assert rs.MiMiC().fit(X, z).certificate_.covariance_gap < 1e-9


def test_a_source_without_spread_is_shifted_and_the_certificate_says_so():
    X, z = np.vstack([np.ones((1, 3)), np.random.default_rng(0).normal(size=(9, 3))]), np.repeat([0, 1], [1, 9])
    with pytest.warns(InfeasibleWarning):
        est = rs.MiMiC().fit(X, z)
    assert not est.certificate_.feasible
    assert est.certificate_.residual_bound == pytest.approx(1.0)
    assert_allclose(est.map_(X[:1])[0], X[1:].mean(0), atol=1e-12)
    assert_allclose(est.map_.weight, np.eye(3))


def test_the_barycentre_does_not_depend_on_which_class_comes_first():
    rng = np.random.default_rng(5)
    few, many = rng.normal(size=(6, 12)), rng.normal(size=(200, 12)) @ np.diag(np.linspace(0.5, 2, 12))
    certificates = []
    for labels in ([0, 1], [1, 0]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InfeasibleWarning)
            est = rs.BarycenterErasure().fit(np.vstack([few, many]), np.repeat(labels, [6, 200]))
        certificates.append(est.certificate_)
    first, second = certificates
    assert first.cost == pytest.approx(second.cost, rel=1e-9)
    assert first.feasible == second.feasible
    assert {r.rows_source: r.cost for r in first.by_source.values()} == pytest.approx(
        {r.rows_source: r.cost for r in second.by_source.values()}
    )


def test_uniform_weights_are_not_frequencies():
    X, z = make_concept(0, d=4, rows=(40, 400))
    by_count, uniform = (rs.BarycenterErasure(weights=w).fit(X, z) for w in ("frequencies", "uniform"))
    means = [est.transform(X, concept=z).mean(0) for est in (by_count, uniform)]
    assert_allclose(means[0], X.mean(0), atol=1e-10)
    assert_allclose(means[1], (X[z == 0].mean(0) + X[z == 1].mean(0)) / 2, atol=1e-10)


@pytest.mark.parametrize("seed", range(60))
def test_a_gap_within_rounding_is_not_called_infeasible(seed):
    # of two classes that cannot reach the barycentre of all each may still meet the other
    rng = np.random.default_rng(seed)
    d, k = rng.integers(2, 9), rng.integers(3, 5)
    parts = [rng.normal(size=(4 * d, r)) @ rng.normal(size=(r, d)) for r in rng.integers(1, d + 1, size=k)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        certificate = rs.BarycenterErasure().fit(np.vstack(parts), np.repeat(np.arange(k), 4 * d)).certificate_
    for record in certificate.by_source.values():
        assert record.feasible or record.covariance_gap > 1e-12
        assert (record.residual_bound == 0) == record.feasible
