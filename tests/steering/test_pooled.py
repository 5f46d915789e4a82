"""Pooled shrinkage: from MiMiC to mean matching, as far as the rows support a covariance of each class."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

import repsurgery as rs
from repsurgery.affine import LowRank, Translation
from repsurgery.errors import DuplicateWarning, InfeasibleWarning, ParameterError
from repsurgery.moments.pooled import pool
from repsurgery.moments.shrinkage import SHRINKAGES
from tests.strategies import EXACT, cov, make_concept, relative

SHAPES = [(6, (60, 90)), (60, (20, 25)), (60, (40, 45)), (60, (20, 300))]
"""More rows than dimensions; fewer in both classes together; fewer in each; fewer in the source alone."""


def fit(concept, alpha, estimator=rs.MiMiC, **params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleWarning)  # alpha = 0 with few rows, as in MiMiC itself
        return estimator(0, 1, shrinkage="pooled", alpha=alpha, **params).fit(*concept)


def mixed(concept, alphas):
    """Return the two shrunk covariances, computed the plain way."""
    S, n = [cov(concept.of(c)) for c in (0, 1)], [len(concept.of(c)) for c in (0, 1)]
    P = (n[0] * S[0] + n[1] * S[1]) / sum(n)
    return [(1 - a) * C + a * P for a, C in zip(alphas, S, strict=True)]


@pytest.mark.parametrize(("d", "rows"), SHAPES)
def test_alpha_one_is_mean_matching(d, rows):
    concept = make_concept(1, d=d, rows=rows)
    est, mean = fit(concept, 1.0), rs.MeanMatching(0, 1).fit(*concept)
    assert isinstance(est.map_, Translation)
    assert_allclose(est.map_.shift, mean.map_.shift, rtol=0, atol=0)
    assert est.certificate_.cost == pytest.approx(est.certificate_.optimal_cost, rel=EXACT)
    assert est.alpha_ == {0: 1.0, 1: 1.0}
    # it claims what it does: covariances that were not touched are not called equal
    assert est.certificate_.claims == mean.certificate_.claims == ("means",)
    assert "covariances" in fit(concept, 0.9).certificate_.claims
    assert relative(fit(concept, 0.9).map_.weight, np.eye(d)) > 1e-3


@pytest.mark.parametrize(("d", "rows"), SHAPES)
def test_the_limit_of_alpha_one_is_continuous(d, rows):
    concept = make_concept(1, d=d, rows=rows)
    near = [np.linalg.norm(fit(concept, 1 - step).map_.weight - np.eye(d), 2) for step in (1e-3, 1e-6)]
    # W − I is of first order in 1 − α: a thousandth of the step is a thousandth of the distance
    assert near[1] == pytest.approx(near[0] / 1000, rel=0.05) and near[0] > 1e-5


@pytest.mark.parametrize(("d", "rows"), SHAPES)
def test_alpha_zero_is_mimic(d, rows):
    concept = make_concept(2, d=d, rows=rows)
    est = fit(concept, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleWarning)
        exact = rs.MiMiC(0, 1).fit(*concept)
    assert type(est.map_) is type(exact.map_)
    assert relative(est.map_.weight, exact.map_.weight) < EXACT
    assert est.certificate_.shrinkage_moved == 0
    assert est.certificate_.covariance_gap == pytest.approx(exact.certificate_.covariance_gap, abs=EXACT)
    assert est.alpha_ == {0: 0.0, 1: 0.0}
    assert relative(fit(concept, 0.1).map_.weight, exact.map_.weight) > 1e-3


@pytest.mark.parametrize("alpha", [0.2, 0.7, "auto"])
@pytest.mark.parametrize(("d", "rows"), SHAPES)
def test_the_map_takes_one_shrunk_covariance_to_the_other(d, rows, alpha):
    concept = make_concept(3, d=d, rows=rows)
    est = fit(concept, alpha)
    S0, S1 = mixed(concept, est.alpha_.values())
    W, certificate = est.map_.weight, est.certificate_
    assert relative(W @ S0 @ W.T, S1) < EXACT
    assert relative(W, W.T) < EXACT  # positive definite on the range: the cheapest of these maps
    assert certificate.feasible
    fidelity = np.sqrt(np.maximum(np.linalg.eigvals(S0 @ S1).real, 0)).sum()
    drift = np.square(concept.of(1).mean(0) - concept.of(0).mean(0)).sum()
    best = drift + np.trace(S0) + np.trace(S1) - 2 * fidelity
    assert certificate.optimal_cost == pytest.approx(best, rel=1e-5)  # eigenvalues near 0 enter by their square roots


@pytest.mark.parametrize("alpha", [0.2, 1.0, "auto"])
@pytest.mark.parametrize(("d", "rows"), SHAPES)
def test_the_certificate_states_the_gap_that_pooling_leaves(d, rows, alpha):
    concept = make_concept(4, d=d, rows=rows)
    est = fit(concept, alpha)
    left = relative(cov(est.map_(concept.of(0))), cov(concept.of(1)))
    certificate = est.certificate_
    assert certificate.shrinkage_moved == pytest.approx(left, rel=1e-6)
    assert certificate.covariance_gap == pytest.approx(left, rel=1e-6)
    assert left > 1e-3 and certificate.mean_gap < EXACT
    assert (certificate.shrinkage, certificate.alpha, certificate.ridge) == ("pooled", alpha, None)
    again = est.certify(*concept)
    assert again.by_source[0].alpha_source == est.alpha_[0] and again.alpha == alpha


def test_few_rows_give_an_update_of_low_rank_that_leaves_other_directions_alone():
    concept = make_concept(5, d=60, rows=(20, 25))
    m = fit(concept, 0.5).map_
    assert isinstance(m, LowRank) and m.right.shape[0] <= 43
    centred = np.vstack([concept.of(c) - concept.of(c).mean(0) for c in (0, 1)])
    outside = np.linalg.svd(centred)[2][43:]
    assert_allclose(m.linear(outside), outside, atol=EXACT)
    assert np.abs(m.linear(centred) - centred).max() > 0.01
    dense = rs.MiMiC(0, 1, shrinkage="pooled", alpha=0.5)
    dense.fit_moments(
        rs.ClassMoments(
            {c: rs.Moments(m.count, m.weight, m.mean, m.scatter, None) for c, m in rs.ClassMoments.of(*concept).items()}
        )
    )
    assert relative(dense.map_.weight, m.weight) < 1e-6  # the scatter holds squares


def alphas(X, z, shrinkage="pooled"):
    moments = rs.ClassMoments.of(X, z)
    if shrinkage == "pooled":
        together = pool(moments.values())
        return [SHRINKAGES["pooled"](m, together, "auto").share for m in moments.values()]
    return [1 - SHRINKAGES[shrinkage](m).keep for m in moments.values()]


@pytest.mark.parametrize(("d", "rows"), [(6, (60, 90)), (40, (150, 300)), (30, (20, 300))])
def test_automatic_alpha_does_not_depend_on_the_coordinates(d, rows):
    X, z = make_concept(6, d=d, rows=rows)
    A = np.random.default_rng(0).normal(size=(d, d)) + 3 * np.eye(d)
    assert any(0 < alpha < 1 for alpha in alphas(X, z))
    assert_allclose(alphas(X @ A + 7, z), alphas(X, z), rtol=1e-7)
    # OAS shrinks towards a sphere, which another basis makes an ellipsoid
    assert np.abs(np.subtract(alphas(X @ A, z, "oas"), alphas(X, z, "oas"))).max() > 1e-3


def test_automatic_alpha_follows_its_formula():
    X, z = make_concept(7, d=5, rows=(50, 80))
    (S0, S1), n = (cov(X[z == c]) for c in (0, 1)), (50, 80)
    P = (n[0] * S0 + n[1] * S1) / 130
    values, V = np.linalg.eigh(P)
    root = V / np.sqrt(values) @ V.T
    for S, count, alpha in zip((S0, S1), n, alphas(X, z), strict=True):
        T = root @ S @ root
        formula = (np.trace(T) ** 2 + np.trace(T @ T)) / count / np.linalg.norm(T - np.eye(5)) ** 2
        assert alpha == pytest.approx(min(1, formula), rel=1e-9)


def test_automatic_alpha_falls_to_zero_where_covariances_differ():
    taken = [max(alphas(*make_concept(8, d=10, rows=(n, n)))) for n in (100, 1000, 10_000, 100_000)]
    # the error falls like 1/n, the distance stays
    assert all(later < earlier / 5 for earlier, later in pairwise(taken))
    assert taken[-1] < 1e-3


@pytest.mark.parametrize("d", [50, 80])
@pytest.mark.parametrize("n", [30, 100, 1000])
def test_automatic_alpha_is_one_where_covariances_agree(d, n):
    rng = np.random.default_rng(9)
    A, z = rng.normal(size=(d, d)), np.repeat([0, 1], n)
    X = rng.normal(size=(2 * n, d)) @ A
    assert min(alphas(X, z)) > 0.9
    X[z == 1] *= np.linspace(0.2, 2, d)
    if n == 1000:
        assert max(alphas(X, z)) < 0.5


def test_rows_outside_the_pooled_range_do_not_make_alpha_small():
    """Measured against the identity of all coordinates, dimensions without rows would count as a known difference."""
    few = make_concept(10, d=300, rows=(30, 30))
    assert min(alphas(*few)) == 1.0
    X, z = make_concept(11, d=5, rows=(60, 90))
    wide = np.hstack([X, np.zeros((len(X), 20))])
    assert_allclose(alphas(wide, z), alphas(X, z), rtol=1e-9)


def test_one_row_or_equal_rows_say_nothing_about_a_covariance():
    X, z = make_concept(12, d=4, rows=(1, 50))
    est = rs.MiMiC(0, 1, shrinkage="pooled").fit(X, z)
    assert est.alpha_[0] == 1.0
    equal = rs.MiMiC(0, 1, shrinkage="pooled").fit(np.vstack([X, X[z == 0], X[z == 0]]), [*z, 0, 0])
    assert equal.alpha_[0] == 1.0 and equal.certificate_.feasible
    single = rs.MiMiC(0, 1, shrinkage="pooled").fit(np.eye(2), [0, 1])
    assert single.alpha_ == {0: 1.0, 1: 1.0}
    assert_allclose(single.transform(np.eye(2), concept=[0, 1]), [[0, 1], [0, 1]])


def test_merged_streamed_and_saved_fits_are_the_same(tmp_path):
    X, z = make_concept(13, d=6, rows=(60, 90))
    whole = rs.MiMiC(0, 1, shrinkage="pooled").fit(X, z)
    parts = [rs.ClassMoments.of(X[i], z[i]) for i in (slice(0, 70), slice(70, None))]
    merged = rs.MiMiC.from_moments(parts[0] + parts[1], source=0, target=1, shrinkage="pooled")
    streamed = rs.MiMiC(0, 1, shrinkage="pooled")
    for i in range(0, len(X), 40):
        streamed.partial_fit(X[i : i + 40], z[i : i + 40])
    rs.save(whole, tmp_path / "e")
    for other in (merged, streamed, rs.load(tmp_path / "e")):
        assert other.alpha_ == pytest.approx(whole.alpha_, rel=EXACT)
        assert relative(other.map_.weight, whole.map_.weight) < EXACT
    assert 0 < whole.alpha_[0] < 1
    assert merged.alpha_[0] != fit((X[:70], z[:70]), "auto").alpha_[0]
    fixed = rs.MiMiC(0, 1, shrinkage="pooled", alpha=0.25).fit(X, z)
    rs.save(fixed, tmp_path / "f")
    loaded = rs.load(tmp_path / "f")
    assert loaded.alpha == 0.25 and loaded.certificate_ == fixed.certificate_
    with pytest.warns(DuplicateWarning, match="rows are counted twice"):
        assert loaded.partial_fit(X, z).alpha_ == {0: 0.25, 1: 0.25}


def test_automatic_alpha_counts_independent_texts():
    X, z = make_concept(21, d=6, rows=(60, 90))
    groups = np.arange(len(X))
    by_rows = fit((X, z), "auto").alpha_
    assert rs.MiMiC(0, 1, shrinkage="pooled").fit(X, z, groups=groups).alpha_ == pytest.approx(by_rows, rel=EXACT)
    # the same rows ten times, each copy in the group of its row: no new text, hence no more support
    tenfold = np.repeat(X, 10, axis=0), np.repeat(z, 10)
    grouped = rs.MiMiC(0, 1, shrinkage="pooled").fit(*tenfold, groups=np.repeat(groups, 10))
    assert grouped.alpha_ == pytest.approx(by_rows, rel=1e-6)
    assert fit(tenfold, "auto").alpha_[0] == pytest.approx(by_rows[0] / 10, rel=1e-6)
    one_text = rs.MiMiC(0, 1, shrinkage="pooled").fit(X, z, groups=np.where(z == 0, 0, groups))
    assert one_text.alpha_[0] == 1.0


def test_each_pair_of_several_sources_is_pooled_alone():
    X, z = make_concept(14, d=6, rows=(60, 90, 120))
    several = rs.MiMiC(target=2, shrinkage="pooled").fit(X, z)
    assert list(several.alpha_) == [0, 1]
    for source in (0, 1):
        alone = rs.MiMiC(source, 2, shrinkage="pooled").fit(X[z != 1 - source], z[z != 1 - source])
        assert several.alpha_[source] == tuple(alone.alpha_.values())
        assert relative(several.maps_[source].weight, alone.map_.weight) < EXACT
    # the target's alpha differs from pair to pair
    assert several.alpha_[0][1] != several.alpha_[1][1]


def test_diagonal_transport_shrinks_variances_to_the_pooled_ones():
    concept = make_concept(15, d=5, rows=(60, 90))
    est = fit(concept, 0.4, rs.DiagonalTransport)
    v0, v1 = (np.diag(S) for S in mixed(concept, (0.4, 0.4)))
    assert_allclose(est.map_.scale, np.sqrt(v1 / v0), rtol=EXACT)
    steered, target = est.map_(concept.of(0)).var(0), concept.of(1).var(0)
    left = np.linalg.norm(steered - target) / np.linalg.norm(cov(concept.of(1)))
    assert est.certificate_.shrinkage_moved == pytest.approx(left, rel=EXACT)
    assert_allclose(fit(concept, 1, rs.DiagonalTransport).map_.scale, 1, rtol=0)


def test_gates_shrink_all_classes_towards_their_pooled_covariance():
    X, z = make_concept(16, d=4, rows=(60, 90, 70))
    shared = rs.build_gate("qda", X, z, shrinkage="pooled", alpha=1)
    # QDA with one covariance for all classes is LDA
    assert (shared.predict(X) == rs.build_gate("lda", X, z).predict(X)).all()
    assert (rs.build_gate("qda", X, z).predict(X) != shared.predict(X)).any()
    est = rs.MiMiC(0, 1, shrinkage="pooled", alpha=1, gate="qda").fit(X, z)
    assert (est.gate_.predict(X) == shared.predict(X)).all()


@pytest.mark.parametrize("alpha", [-0.1, 1.5, "x", float("nan"), True, None, [0.5]])
def test_a_wrong_alpha_is_refused(alpha):
    with pytest.raises(ParameterError, match="it must be 'auto' or a number from 0 to 1"):
        fit(make_concept(17), alpha)


def test_alpha_is_refused_where_the_shrinkage_does_not_read_it():
    X, z = make_concept(18)
    for name in ("none", "oas"):
        with pytest.raises(ParameterError, match=r"does not read it\. Leave alpha out, or choose shrinkage='pooled'"):
            rs.MiMiC(0, 1, shrinkage=name, alpha=0.5).fit(X, z)
    with pytest.raises(ParameterError, match="does not read it"):
        rs.build_gate("lda", X, z, shrinkage="oas", alpha=0.5)
    with pytest.raises(ParameterError, match="'nearest-mean' does not read alpha"):
        rs.build_gate("nearest-mean", X, z, alpha=0.5)
    with pytest.raises(AttributeError, match="Choose shrinkage='pooled'"):
        _ = rs.MiMiC(0, 1).fit(X, z).alpha_


@pytest.mark.parametrize("estimator", [rs.LEACE, rs.MidSteer, rs.BarycenterErasure])
def test_methods_without_a_pair_refuse_pooled_covariances(estimator):
    with pytest.raises(ParameterError, match=r"there is no such pair. Choose one of 'ledoit-wolf', 'none', 'oas'"):
        estimator(shrinkage="pooled").fit(*make_concept(19))


def test_alpha_is_a_parameter_like_the_others():
    est = rs.MiMiC(shrinkage="pooled", alpha=0.3)
    assert clone(est).get_params()["alpha"] == 0.3 and rs.MiMiC().alpha == "auto"


def test_mimic_itself_stays_exact():
    est = rs.MiMiC(0, 1).fit(*make_concept(20))
    assert est.certificate_.shrinkage == "none" and est.certificate_.covariance_gap < EXACT
