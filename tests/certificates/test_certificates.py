import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import repsurgery as rs
from repsurgery.certificates.certificate import Certificate
from repsurgery.errors import CertificateError, LabelError, SurgeryError
from tests.estimators import ALL, EQUAL_MEANS
from tests.strategies import EXACT, Concept, concepts, cov, make_concept, relative

CLAIMED = {"means": "mean_gap", "covariances": "covariance_gap", "variances": "variance_gap", "neighbours": "ebbn"}


@pytest.mark.parametrize("estimator", EQUAL_MEANS)
def test_what_is_claimed_holds_and_was_not_so_before(estimator):
    concept = make_concept(0, d=6, rows=(200, 300))
    certificate = estimator().fit(*concept).certificate_
    for claim in certificate.claims:
        assert getattr(certificate, CLAIMED[claim]) < EXACT
    record = certificate.by_source[0]
    assert record.mean_gap_before > 0.1
    assert record.covariance_gap_before > 0.1
    assert record.ebbn_before > 0.1
    assert record.probe_r2_before > 0.1
    assert certificate.probe_r2 < EXACT


@pytest.mark.parametrize("estimator", EQUAL_MEANS)
def test_before_certify_the_fields_that_need_rows_are_none(estimator):
    concept = make_concept(0)
    est = estimator().fit(*concept)
    needs_rows = ("gated_mean_gap", "gated_covariance_gap", "ebbn_u", "prior_entropy", "probe_loss", "gated_probe_loss")
    for name in (*needs_rows, "youden"):
        assert getattr(est.certificate_, name) is None
    measured = est.certify(*concept)
    assert est.certificate_.data == "fitting moments"
    assert measured.data == "given rows"
    for name in needs_rows:
        assert getattr(measured, name) is not None
    assert measured.mean_gap == pytest.approx(est.certificate_.mean_gap, abs=1e-12)
    assert measured.probe_loss == pytest.approx(measured.prior_entropy, abs=1e-7)


@given(concepts(scales=(1.0,)))
def test_the_least_squares_probe_is_the_r_squared_of_a_regression(concept):
    X, z = concept
    A = np.column_stack([np.ones(len(X)), X])
    fitted = A @ np.linalg.lstsq(A, z.astype(float), rcond=None)[0]
    r2 = 1 - np.square(z - fitted).sum() / np.square(z - z.mean()).sum()
    assert rs.MeanMatching().fit(X, z).certificate_.by_source[0].probe_r2_before == pytest.approx(r2, abs=1e-8)


def test_with_fewer_rows_than_dimensions_a_probe_reads_everything_until_the_means_meet():
    X, z = make_concept(0, d=40, rows=(8, 9))
    record = rs.MeanMatching().fit(X, z).certificate_.by_source[0]
    assert record.probe_r2_before == pytest.approx(1.0)
    assert record.probe_r2 < EXACT


def test_measures_agree_with_their_definitions_on_rows():
    concept = make_concept(1, d=5, rows=(70, 110))
    est = rs.MeanMatching().fit(*concept)
    steered, target = est.map_(concept.of(0)), concept.of(1)
    certificate = est.certificate_
    assert certificate.covariance_gap == pytest.approx(relative(cov(steered), cov(target)), rel=1e-10)
    assert certificate.cost == pytest.approx(np.square(concept.of(0) - steered).sum(1).mean(), rel=1e-12)
    diagonal = np.diagonal(cov(steered)) - np.diagonal(cov(target))
    assert certificate.variance_gap == pytest.approx(
        np.linalg.norm(diagonal) / np.linalg.norm(np.diagonal(cov(target))), rel=1e-10
    )
    assert certificate.gain == 1.0
    J = certificate.youden or est.certify(*concept).youden
    predicted = est.gate_.predict(concept.X)
    assert pytest.approx((predicted[concept.z == 0] == 0).mean() - (predicted[concept.z == 1] == 0).mean()) == J


@pytest.mark.parametrize("estimator", ALL)
def test_a_certificate_is_plain_json_and_back(estimator):
    est = estimator().fit(*make_concept(0))
    text = json.dumps(est.certificate_.to_dict())
    assert Certificate.from_dict(json.loads(text)) == est.certificate_
    assert {"mean_gap", "covariance_gap", "ebbn", "cost", "optimal_cost", "by_source"} <= set(json.loads(text))


@pytest.mark.parametrize("estimator", ALL)
def test_verify_accepts_the_fit_and_fresh_rows_of_the_same_kind(estimator):
    rows = make_concept(3, d=5, rows=(1200, 1600))
    half = len(rows.z) // 2
    est = estimator().fit(rows.X[:half], rows.z[:half])
    assert est.verify() is est
    est.verify(rows.X[:half], rows.z[:half])
    est.verify(rows.X[half:], rows.z[half:])


@pytest.mark.parametrize("estimator", EQUAL_MEANS)
def test_verify_rejects_rows_that_moved(estimator):
    X, z = make_concept(3, d=5, rows=(1200, 1600))
    est = estimator().fit(X, z)
    moved = X.copy()
    moved[z == 0] += 2.0
    with pytest.raises(CertificateError, match="fit again"):
        est.verify(moved, z)


@pytest.mark.parametrize("estimator", [rs.MiMiC, rs.BarycenterErasure, rs.TraceMatching])
def test_verify_rejects_a_changed_spread(estimator):
    X, z = make_concept(3, d=5, rows=(1200, 1600))
    est = estimator().fit(X, z)
    wide = X.copy()
    wide[z == 0] = wide[z == 0].mean(0) + 2 * (wide[z == 0] - wide[z == 0].mean(0))
    with pytest.raises(CertificateError, match=r"covariance_gap|ebbn"):
        est.verify(wide, z)
    rs.MeanMatching().fit(X, z).verify(wide, z)  # it claims means only, and those still meet


def tamper(m):
    array = next(a for a in m.arrays().values() if a.size)
    array = array if array.base is None else array.base
    array.flags.writeable = True
    array.flat[0] += 1e-9


@pytest.mark.parametrize("estimator", ALL)
def test_verify_notices_bytes_and_casts(estimator):
    X, z = make_concept(0)
    est = estimator().fit(X, z)
    with pytest.raises(CertificateError, match="altered or cast"):
        rs.verify(est.steering_.astype(np.float32))
    with pytest.raises(SurgeryError, match="no certificate"):
        rs.verify(rs.interpolate(est.steering_, 0.5))
    tamper(next(iter(est.maps_.values())))
    with pytest.raises(CertificateError, match="altered or cast"):
        est.verify()


def test_a_tampered_gate_is_noticed_too():
    est = rs.MiMiC().fit(*make_concept(0))
    tamper(est.gate_)
    with pytest.raises(CertificateError, match="altered or cast"):
        est.verify()


def test_rows_to_certify_on_must_hold_every_class():
    X, z = make_concept(0)
    est = rs.MiMiC().fit(X, z)
    with pytest.raises(LabelError, match="missing from these rows"):
        est.certify(X[z == 0], z[z == 0])
    with pytest.raises(LabelError, match="unknown to the fit"):
        est.verify(X, z + 5)
    with pytest.raises(LabelError, match="requires y"):
        est.certify(X)


@given(st.integers(0, 1000))
def test_labels_gate_and_always_gate_are_certified_as_they_act(seed):
    X, z = make_concept(seed, d=4)
    labels = rs.MiMiC(gate="labels").fit(X, z).certify(X, z)
    assert labels.youden == 1.0
    assert labels.gated_covariance_gap < EXACT
    everybody = rs.MeanMatching(gate="always").fit(X, z).certify(X, z)
    assert everybody.youden is None
    assert everybody.gated_mean_gap == pytest.approx(everybody.by_source[0].mean_gap_before, rel=1e-9)


def test_precision_and_dtype_are_recorded():
    concept = make_concept(0, d=4, rows=(300, 300), dtype=np.float32)
    est = rs.MiMiC(precision="float32-products").fit(*concept)
    assert (est.certificate_.precision, est.certificate_.dtype) == ("float32-products", "float32")
    exact = rs.MiMiC().fit(*Concept(concept.X.astype(float), concept.z))
    assert (exact.certificate_.precision, exact.certificate_.dtype) == ("float64", "float64")
    assert exact.certificate_.rank_tolerance < est.certificate_.rank_tolerance
    assert relative(est.map_.weight, exact.map_.weight) < 2e-5


@pytest.mark.parametrize("estimator", [rs.MeanMatching, rs.TraceMatching])
def test_a_concept_that_comes_back_in_one_direction_is_noticed_in_many_dimensions(estimator):
    rng = np.random.default_rng(0)
    d, n = 256, 1000
    z = np.repeat([0, 1], n)

    def draw(back):
        X = rng.normal(size=(2 * n, d))
        X[:n, 0] += 2 + back
        return X

    est = estimator().fit(draw(0.0), z)
    est.verify(draw(0.0), z)
    with pytest.raises(CertificateError, match=r"coordinate 0|along the concept"):
        est.verify(draw(1.0), z)


def test_an_erasure_that_does_not_reach_fresh_rows_is_noticed():
    # in 256 dimensions 300 rows a class leave about a third of the gap on fresh rows
    rng = np.random.default_rng(0)
    few, many = (np.repeat([0, 1], n) for n in (300, 1000))
    first, second = (rng.normal(size=(len(z), 256)) + 2 * np.outer(z == 0, np.eye(256)[0]) for z in (few, many))
    est = rs.LEACE().fit(first, few)
    est.verify(first, few)
    with pytest.raises(CertificateError, match="too few rows"):
        est.verify(second, many)


def test_an_overfitted_map_does_not_excuse_its_own_spread():
    rng = np.random.default_rng(0)
    est = rs.MiMiC().fit(rng.normal(size=(76, 32)), np.repeat([0, 1], 38))
    with pytest.raises(CertificateError, match="covariance_gap"):
        est.verify(rng.normal(size=(10_000, 32)), np.repeat([0, 1], 5000))


def test_a_handful_of_rows_proves_nothing():
    X, z = make_concept(0)
    with pytest.raises(rs.errors.DataError, match="Pass more rows"):
        rs.MiMiC().fit(X, z).verify(X[:4], np.array([0, 0, 1, 1]))


def test_many_rows_of_a_handful_of_groups_prove_nothing():
    X, z = make_concept(0)
    with pytest.raises(rs.errors.DataError, match="Pass more groups of rows"):
        rs.MiMiC().fit(X, z).verify(X, z, groups=np.arange(len(X)) % 4)


@pytest.mark.parametrize("estimator", [rs.MiMiC, rs.TraceMatching, rs.BarycenterErasure, rs.MidSteer])
def test_no_gap_is_predicted_where_no_law_holds(estimator):
    concept = make_concept(0)
    assert estimator().fit(*concept).certify(*concept).predicted_mean_gap is None


def test_with_several_sources_each_figure_is_the_worst():
    concept = make_concept(3, rows=(60, 80, 100, 90))
    c = rs.MeanMatching().fit(*concept).certify(*concept)
    records = list(c.by_source.values())
    for name in ("mean_gap", "covariance_gap", "ebbn", "cost", "gated_mean_gap", "ebbn_u"):
        assert getattr(c, name) == max(getattr(r, name) for r in records)
        assert getattr(c, name) > min(getattr(r, name) for r in records)
    assert c.youden == min(r.youden for r in records) < max(r.youden for r in records)


def test_youden_compares_the_source_with_its_target_and_no_other_class():
    # class 2 looks like the source to the gate: against all others J would fall, against the target it does not
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [8.0, 0.0], [0.5, 0.0]])
    z = np.repeat([0, 1, 2], 300)
    X = centres[z] + rng.normal(size=(900, 2))
    est = rs.MeanMatching(source=0, target=1).fit(X, z)
    hit = est.gate_.predict(X) == 0
    record = est.certify(X, z).by_source[0]
    assert record.youden == pytest.approx(hit[z == 0].mean() - hit[z == 1].mean())
    assert record.youden > 0.1 + hit[z == 0].mean() - hit[z != 0].mean()
