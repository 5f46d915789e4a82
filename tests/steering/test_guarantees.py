"""Every line of a Guarantees section, as a theorem with a counter-check that fails without the method."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import repsurgery as rs
from repsurgery.certificates.from_rows import logistic_probe, prior_entropy
from repsurgery.errors import GainWarning
from tests.strategies import EXACT, Concept, concepts, cov, make_concept, relative

TOWARD = [rs.MeanMatching, rs.MiMiC, rs.TraceMatching, rs.DiagonalTransport, rs.MidSteer]
ALL = [*TOWARD, rs.LEACE, rs.BarycenterErasure]


def spread(X):
    return np.sqrt(np.trace(cov(X)))


def ebbn(source, target):
    """EBBN by its definition: all pairs, self pairs included."""

    def squares(A, B):
        return ((A[:, None] - B[None]) ** 2).sum(axis=2).mean()

    return abs(squares(source, source) - squares(source, target))


def assert_equal_means(source, target, before):
    gap = np.linalg.norm(source.mean(0) - target.mean(0))
    assert gap < EXACT * (spread(target) + np.linalg.norm(before.mean(0) - target.mean(0)))


@given(concepts())
def test_mean_matching_equalises_means(concept):
    est = rs.MeanMatching().fit(*concept)
    source, target = concept.of(0), concept.of(1)
    assert_equal_means(est.map_(source), target, source)
    assert np.linalg.norm(source.mean(0) - target.mean(0)) > 1e-6 * spread(target)
    assert_allclose(est.map_.weight, np.eye(concept.X.shape[1]))


@given(concepts())
def test_mimic_equalises_means_and_covariances(concept):
    est = rs.MiMiC().fit(*concept)
    source, target = concept.of(0), concept.of(1)
    steered = est.map_(source)
    assert_equal_means(steered, target, source)
    assert relative(cov(steered), cov(target)) < EXACT
    assert relative(cov(source), cov(target)) > 1e-3
    assert relative(est.map_.weight, est.map_.weight.T) < EXACT


@given(concepts(scales=(1.0,)))
def test_mimic_has_no_expected_bias_by_neighbours(concept):
    est = rs.MiMiC().fit(*concept)
    source, target = concept.of(0), concept.of(1)
    scale = np.trace(cov(target))
    assert ebbn(est.map_(source), target) < EXACT * scale
    assert ebbn(source, target) > 1e-6 * scale
    certificate = est.certify(*concept)
    assert certificate.ebbn < EXACT * scale
    assert certificate.ebbn_u == pytest.approx(2 * scale / (len(source) - 1), rel=1e-6)


@given(concepts(scales=(1.0,)))
def test_trace_matching_has_no_neighbour_bias(concept):
    source, target = concept.of(0), concept.of(1)
    steered = rs.TraceMatching().fit(*concept).map_(source)
    assert_equal_means(steered, target, source)
    assert ebbn(steered, target) < EXACT * np.trace(cov(target))
    only_means = rs.MeanMatching().fit(*concept).map_(source)
    assert ebbn(only_means, target) == pytest.approx(abs(np.trace(cov(source)) - np.trace(cov(target))), rel=1e-6)


@given(concepts())
def test_diagonal_transport_equalises_variances(concept):
    source, target = concept.of(0), concept.of(1)
    est = rs.DiagonalTransport().fit(*concept)
    steered = est.map_(source)
    assert_equal_means(steered, target, source)
    assert_allclose(steered.var(0), target.var(0), rtol=EXACT)
    assert est.certificate_.variance_gap < EXACT
    assert np.abs(source.var(0) / target.var(0) - 1).max() > 1e-3


@given(concepts())
def test_midsteer_switches_means(concept):
    source, target = concept.of(0), concept.of(1)
    est = rs.MidSteer().fit(*concept)
    assert_equal_means(est.map_(source), target, source)
    centre = concept.X.mean(0)
    assert_allclose(est.map_(centre), centre, atol=EXACT * (spread(concept.X) + np.abs(centre).max()))
    assert est.map_.rank == 1


def test_midsteer_leaves_a_named_neutral_class_in_place():
    concept = make_concept(1, d=5, rows=(80, 60, 90))
    est = rs.MidSteer(source=0, target=1, neutral=2).fit(*concept)
    neutral = concept.of(2).mean(0)
    assert_allclose(est.map_(neutral), neutral, atol=1e-12)
    assert_equal_means(est.map_(concept.of(0)), concept.of(1), concept.of(0))
    displacement = concept.of(2) - est.map_(concept.of(2))
    assert est.certificate_.cost == pytest.approx(np.square(displacement).sum(axis=1).mean(), rel=EXACT)
    erase = rs.MidSteer(source=0, target=2, neutral=2).fit(*concept)
    assert_equal_means(erase.map_(concept.of(0)), concept.of(2), concept.of(0))


@given(concepts())
def test_leace_is_midsteer_part_of_the_way(concept):
    switch, erase = rs.MidSteer().fit(*concept).map_, rs.LEACE().fit(*concept).map_
    part = rs.interpolate(switch, float((concept.z == 1).mean()))
    assert_allclose(part.weight, erase.weight, atol=1e-7)
    assert np.abs(switch.weight - erase.weight).max() > 1e-3


def test_midsteer_is_the_steering_vector_where_the_concept_has_no_spread():
    X, z = make_concept(2, d=5)
    X[:, 0] = z  # the concept is this coordinate, without spread inside a class
    X[:, 1:] -= np.array([X[z == c, 1:].mean(0) for c in (0, 1)])[z]
    concept = Concept(X, z)
    steered, shifted = (m().fit(X, z).map_(concept.of(0)) for m in (rs.MidSteer, rs.MeanMatching))
    assert_allclose(steered, shifted, atol=1e-10)
    assert np.abs(rs.LEACE().fit(X, z).map_(concept.of(0)) - shifted).max() > 0.1


@given(concepts(classes=3))
def test_leace_equalises_class_means(concept):
    est = rs.LEACE().fit(*concept)
    Y, centre = est.transform(concept.X), concept.X.mean(0)
    for c in range(3):
        assert np.linalg.norm(Y[concept.z == c].mean(0) - centre) < EXACT * spread(concept.X)
    assert max(np.linalg.norm(concept.of(c).mean(0) - centre) for c in range(3)) > 1e-3 * spread(concept.X)
    assert est.map_.rank <= 2


@given(concepts(classes=2, max_d=6))
def test_leace_is_a_projection_that_keeps_the_mean(concept):
    m = rs.LEACE().fit(*concept).map_
    Y = m(concept.X)
    scale = spread(concept.X)
    assert_allclose(Y.mean(0), concept.X.mean(0), atol=EXACT * (scale + np.abs(concept.X).max()))
    assert_allclose(m(Y), Y, atol=EXACT * (scale + np.abs(concept.X).max()))
    assert np.abs(Y - concept.X).max() > 1e-3 * scale


@given(concepts(classes=3))
def test_barycenter_erasure_equalises_every_class(concept):
    est = rs.BarycenterErasure().fit(*concept)
    steered = est.transform(concept.X, concept=concept.z)
    parts = [steered[concept.z == c] for c in range(3)]
    for part in parts[1:]:
        assert_equal_means(part, parts[0], concept.of(0))
        assert relative(cov(part), cov(parts[0])) < EXACT
    assert relative(cov(concept.of(0)), cov(concept.of(1))) > 1e-3


@given(concepts(classes=2))
def test_barycenter_erasure_keeps_the_overall_mean(concept):
    steered = rs.BarycenterErasure().fit(*concept).transform(concept.X, concept=concept.z)
    scale = spread(concept.X) + np.abs(concept.X).max()
    assert_allclose(steered.mean(0), concept.X.mean(0), atol=EXACT * scale)


@pytest.mark.parametrize("classes", [2, 4])
def test_the_barycentre_is_cheaper_than_its_neighbours(classes):
    concept = make_concept(5, d=4, rows=(90, 60, 70, 80)[:classes])
    est = rs.BarycenterErasure().fit(*concept)
    weights = np.bincount(concept.z) / len(concept.z)
    common = cov(est.maps_[0](concept.of(0)))

    def functional(S):
        root = np.linalg.cholesky(S)
        return sum(
            w
            * (
                np.trace(cov(concept.of(c)))
                + np.trace(S)
                - 2 * np.linalg.svd(np.linalg.cholesky(cov(concept.of(c))).T @ root, compute_uv=False).sum()
            )
            for c, w in enumerate(weights)
        )

    rng = np.random.default_rng(0)
    for _ in range(20):
        A = rng.normal(size=(4, 4)) * 0.05
        assert functional(common) < functional((np.eye(4) + A) @ common @ (np.eye(4) + A).T)


@pytest.mark.parametrize("estimator", ALL)
@given(concept=concepts(scales=(1.0,)))
def test_cost_attains_the_stated_optimum(estimator, concept):
    est = estimator().fit(*concept)
    certificate = est.certificate_
    steered = est.steering_(concept.X, concept.z)
    moved = np.square(concept.X - steered).sum(axis=1)
    measured = {"source": moved[concept.z == 0].mean(), "all": moved.mean()}
    if certificate.population in measured:
        assert certificate.cost == pytest.approx(measured[certificate.population], rel=EXACT, abs=EXACT)
    scale = np.trace(cov(concept.X))
    assert certificate.cost == pytest.approx(certificate.optimal_cost, rel=1e-8, abs=1e-9 * scale)


@given(concepts(max_d=5, scales=(1.0,)), st.integers(0, 2**32 - 1))
def test_perturbed_maps_that_keep_the_constraint_cost_more(concept, seed):
    source, target = concept.of(0), concept.of(1)
    d = source.shape[1]
    rng = np.random.default_rng(seed)

    def cost(W):
        b = target.mean(0) - W @ source.mean(0)
        return np.square(source - (source @ W.T + b)).sum(axis=1).mean()

    E = 0.1 * rng.normal(size=(d, d))
    assert cost(np.eye(d) + E) > cost(np.eye(d))
    W = rs.MiMiC().fit(*concept).map_.weight
    root = np.linalg.cholesky(cov(source))
    Q, _ = np.linalg.qr(np.eye(d) + E)
    Q *= np.sign(np.diagonal(Q))
    rotated = W @ root @ Q @ np.linalg.inv(root)
    assert cost(W) <= cost(rotated) * (1 + 1e-9)


@pytest.mark.parametrize("estimator", [rs.MeanMatching, rs.MiMiC, rs.LEACE])
def test_equal_means_leave_a_logistic_probe_at_the_prior_entropy(estimator):
    X, z = make_concept(4, d=8, rows=(300, 200))
    steered = estimator().fit(X, z).transform(X, concept=z)
    assert logistic_probe(steered, z) == pytest.approx(prior_entropy(z), abs=1e-8)
    assert logistic_probe(X, z) < prior_entropy(z) - 0.1
    free = LogisticRegression(C=np.inf, tol=1e-8, max_iter=5000)
    # tol bounds the gradient; at curvature p(1 − p)/CONDITION that is 1e-4 of a logit
    assert free.fit(steered, z).decision_function(steered).std() < 1e-4
    assert free.fit(X, z).decision_function(X).std() > 0.5
    hinge = LinearSVC(dual=False, tol=1e-10, max_iter=20_000).fit(steered, z)
    assert (hinge.predict(steered) == 0).all()  # the majority
    assert LinearSVC(dual=False).fit(X, z).score(X, z) > 0.75


def test_zero_one_loss_is_not_covered_by_the_guarantee():
    # class 0 sits at 0, class 1 at ±1: equal means, yet a threshold is right three times in four
    x = np.array([0.0, 0.0, -1.0, 1.0])[:, None]
    z = np.array([0, 0, 1, 1])
    assert rs.MeanMatching().fit(x, z).certificate_.by_source[0].mean_gap_before == 0
    assert ((x[:, 0] > 0.5) == z).mean() == 0.75
    assert logistic_probe(x, z) == pytest.approx(np.log(2))


@given(concepts(scales=(1.0,)), st.floats(0.55, 0.95))
def test_an_imperfect_gate_leaves_one_minus_j_of_the_gap(concept, accuracy):
    X, z = concept
    rng = np.random.default_rng(int(accuracy * 1e6))
    predicted = np.where(rng.random(len(z)) < accuracy, z, 1 - z)
    est = rs.MeanMatching().fit(X, z)
    steered = est.steering_(X, predicted)
    J = (predicted[z == 0] == 0).mean() - (predicted[z == 1] == 0).mean()
    D = X[z == 1].mean(0) - X[z == 0].mean(0)
    left = steered[z == 1].mean(0) - steered[z == 0].mean(0)
    assert_allclose(left, (1 - J) * D, atol=1e-12 * (1 + np.abs(X).max()))


@given(concepts(scales=(1.0,)))
def test_certify_predicts_the_gap_the_gate_leaves(concept):
    certificate = rs.MeanMatching().fit(*concept).certify(*concept)
    assert certificate.gated_mean_gap == pytest.approx(certificate.predicted_mean_gap, rel=1e-9, abs=1e-12)
    assert certificate.youden < 1 or certificate.gated_mean_gap < 1e-12


@given(concepts())
def test_steering_everybody_leaves_the_gap_at_w_times_it(concept):
    X, z = concept
    m = rs.MiMiC(gate="always").fit(X, z)
    Y = m.transform(X)
    gap = X[z == 1].mean(0) - X[z == 0].mean(0)
    assert_allclose(Y[z == 1].mean(0) - Y[z == 0].mean(0), m.map_.weight @ gap, atol=EXACT * (1 + np.abs(X).max()))


def test_several_sources_each_have_their_own_map():
    concept = make_concept(7, rows=(50, 60, 70, 80))
    est = rs.MiMiC(source=[0, 2], target=1).fit(*concept)
    assert list(est.maps_) == [0, 2]
    steered = est.transform(concept.X, concept=concept.z)
    for c in (0, 2):
        assert relative(cov(steered[concept.z == c]), cov(concept.of(1))) < EXACT
    assert (steered[concept.z == 3] == concept.of(3)).all()
    with pytest.raises(rs.errors.SurgeryError, match="maps_"):
        _ = est.map_
    defaults = rs.MeanMatching().fit(*concept)
    assert list(defaults.maps_) == [0, 1, 2]
    assert defaults.certificate_.target == 3
    assert set(est.certificate_.by_source) == {0, 2}
    assert est.certificate_.cost == max(r.cost for r in est.certificate_.by_source.values())


def test_constant_columns_are_only_shifted():
    X, z = make_concept(0, d=5)
    X[:, 2] = np.where(z == 0, 3.0, 7.0) + 1e6
    for estimator in (rs.DiagonalTransport, rs.MiMiC, rs.TraceMatching):
        est = estimator().fit(X, z)
        steered = est.map_(X[z == 0])
        assert_allclose(steered[:, 2], 7.0 + 1e6, rtol=1e-12)
        assert est.certificate_.feasible
    assert rs.DiagonalTransport().fit(X, z).map_.scale[2] == 1.0
    assert rs.MiMiC().fit(X, z).certificate_.by_source[0].rank_source == 4


def test_a_dead_coordinate_does_not_give_leace_a_gain():
    """Encoders have units of size 1e-33; whitening them would multiply rounding noise by 1e31."""
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(400, 6)), np.repeat([0, 1], 200)
    X[z == 1] += 0.5
    X[:, 3] *= 1e-33
    leace = rs.LEACE().fit(X, z)
    assert leace.certificate_.gain < 10
    Y = leace.transform(X)
    assert np.abs(Y[z == 1].mean(0) - Y[z == 0].mean(0)).max() < 1e-12
    # a column that is only small is a measurement in another unit, and is erased like any other
    X[:, 3] *= 1e33 * 1e-9
    with pytest.warns(GainWarning, match="stretches"):
        Y = rs.LEACE().fit(X, z).transform(X)
    gap = np.abs(Y[z == 1].mean(0) - Y[z == 0].mean(0))
    assert (gap < 1e-12 * X.std(0)).all()
