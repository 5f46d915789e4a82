"""What `verify` promises: its level on any kind of data, and that no power is not support."""

import numpy as np
import pytest
from benchmarks.verification import KINDS, METHODS, verdicts
from scipy.stats import binom

import repsurgery as rs
from repsurgery.certificates.certificate import Certificate
from repsurgery.certificates.verify import LEVEL, Verification, verdict_of
from repsurgery.errors import CertificateError, DataError
from tests.strategies import make_concept

REPEATS = {"200 fitted, 200 new": 6, "2,000 fitted, 20 new": 2, "classes of 2,000 and 20": 2}
RARE = ("3 % lognormal, else zero", "1 % of rows far along one direction", "1 % of rows thirty times as wide")
"""Kinds of data whose second moments hang on rows that the fit, or the new rows, may lack."""
UNEXPECTED = 1e-4
"""How seldom a test of one cell fails by chance where the level holds exactly."""


def _require_level(kind, sizes, repeats):
    found = verdicts(kind, METHODS, sizes, left=0.0, repeats=repeats, seed=7)
    alarms = [found[method]["contradicted"] for method in METHODS]
    assert max(alarms) <= binom.isf(UNEXPECTED, repeats, LEVEL)
    assert sum(alarms) <= binom.isf(UNEXPECTED, repeats * len(alarms), LEVEL)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in RARE])
def test_false_alarms_stay_below_the_level_on_many_kinds_of_data(kind):
    for sizes, repeats in REPEATS.items():
        _require_level(kind, sizes, repeats)


@pytest.mark.parametrize("kind", RARE)
def test_rows_that_only_the_fit_has_seen_raise_no_alarm(kind):
    _require_level(kind, "200 fitted, 200 new", 30)


@pytest.mark.parametrize("kind", ["source three times as wide", "normal"])
def test_a_map_that_leaves_a_fifth_of_the_gap_is_noticed(kind):
    weak = verdicts(kind, METHODS, "2,000 fitted, 2,000 new", left=0.2, repeats=3)
    assert {method: dict(found) for method, found in weak.items()} == {m: {"contradicted": 3} for m in METHODS}


def test_a_right_map_is_supported_by_many_rows():
    methods = [m for m in METHODS if m != "BarycenterErasure"]
    right = verdicts("source three times as wide", methods, "2,000 fitted, 2,000 new", left=0.0, repeats=3)
    assert {method: dict(found) for method, found in right.items()} == {m: {"supported": 3} for m in methods}


def test_a_map_that_leaves_a_fifth_of_the_gap_is_seldom_supported():
    supported = 0
    z = np.repeat([0, 1], 500)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, fresh = (rng.exponential(size=(1000, 20)) + 0.5 * z[:, None] for _ in range(2))
        est = rs.MeanMatching().fit(X, z)
        weaker = rs.interpolate(est.steering_, 0.8)
        steering = rs.SteeringFunction(weaker.maps, weaker.gate, weaker.classes).sealed(est.certificate_)
        supported += verdict_of(lambda steering=steering, fresh=fresh: rs.verify(steering, fresh, z)) == "supported"
    assert supported <= 2


def _with_pair(certificate, **changes):
    plain = certificate.to_dict()
    plain["by_source"] = [{**plain["by_source"][0], **changes}]
    return {**plain, **{name: value for name, value in changes.items() if name in plain}}


@pytest.mark.parametrize("estimator", [rs.MeanMatching, rs.MiMiC])
def test_a_claimed_gap_does_not_excuse_a_real_one(estimator):
    X, z = make_concept(0, d=5, rows=(600, 700))
    est = estimator().fit(X, z)
    plain = _with_pair(est.certificate_, mean_gap=1e9, covariance_gap=1e9, ebbn=1e9)
    forged = rs.SteeringFunction(est.maps_, est.gate_, tuple(est.classes_.tolist())).sealed(
        Certificate.from_dict(plain)
    )
    moved = X + 100 * (z == 0)[:, None]
    with pytest.raises(CertificateError, match="contradict equal means"):
        forged.verify(moved, z)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, np.nan) for name in ("mean_gap", "ebbn", "cost", "gain", "youden", "covariance_gap")),
        *(("mean_gap", np.inf), ("mean_gap", -1.0), ("cost", -1.0), ("cost", np.inf), ("gain", -1.0), ("gain", np.inf)),
        *(("youden", 1.5), ("youden", -np.inf), ("probe_r2", 2.0), ("rows_source", 2**80), ("rows_source", 0)),
        *(("weight_source", np.nan), ("rank_source", -1)),
    ],
)
def test_a_certificate_of_impossible_figures_is_refused(name, value):
    certificate = rs.MiMiC().fit(*make_concept(0, d=5)).certificate_
    assert Certificate.from_dict(certificate.to_dict()) == certificate
    with pytest.raises(DataError, match=f"{name} is"):
        Certificate.from_dict(_with_pair(certificate, **{name: value}))
    if name in certificate.to_dict():
        with pytest.raises(DataError, match=f"Certificate.{name} is"):
            Certificate.from_dict({**certificate.to_dict(), name: value})


def test_no_power_is_not_support():
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1], 2000)

    def draw():
        return rng.normal(size=(4000, 20)) * np.where(z == 0, 2.0, 1.0)[:, None] + np.outer(z == 0, np.full(20, 1.0))

    X, fresh = draw(), draw()
    est = rs.MiMiC().fit(X, z)
    few = np.r_[0:30, 2000:2030]
    many, scarce = rs.verify(est.steering_, fresh, z), rs.verify(est.steering_, fresh[few], z[few])
    assert many.verdict == "supported" and many.power > 0.8 and many.p_value > many.level
    assert scarce.verdict == "cannot tell" and scarce.power < 0.8
    assert {f.claim for f in many.findings} == {"means", "covariances", "neighbours"}
    assert rs.verify(est.steering_).verdict == "cannot tell"  # bytes alone say nothing of data


def test_a_gap_no_smaller_than_the_untouched_one_is_never_supported():
    # too few rows to fit a covariance: on new rows MiMiC leaves a larger gap than it found
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1], 100)
    first, second = (rng.normal(size=(200, 40)) * np.where(z == 0, 1.3, 1.0)[:, None] for _ in range(2))
    est = rs.MiMiC().fit(first, z)
    record = est.certify(second, z).by_source[0]
    assert record.covariance_gap > record.covariance_gap_before
    try:
        finding = next(f for f in est.steering_.verify(second, z).findings if f.claim == "covariances")
    except CertificateError:
        return
    assert finding.verdict == "cannot tell"


def test_the_verdict_does_not_depend_on_units_or_on_a_call_before():
    X, z = make_concept(0, d=5, rows=(600, 700))
    fresh, y = make_concept(0, d=5, rows=(600, 700), offset=0.0)
    one = rs.verify(rs.MiMiC().fit(X, z).steering_, fresh, y)
    two = rs.verify(rs.MiMiC().fit(1024 * X, z).steering_, 1024 * fresh, y)
    assert [f.p_value for f in one.findings] == pytest.approx([f.p_value for f in two.findings])
    assert [f.power for f in one.findings] == pytest.approx([f.power for f in two.findings])
    est = rs.MiMiC().fit(X, z)
    assert est.verify(fresh, y) is est
    assert est.verification_ == est.verify(fresh, y).verification_ == est.steering_.verify(fresh, y)
    assert isinstance(est.verification_, Verification)


def test_the_worst_finding_decides():
    X, z = make_concept(0, d=4, rows=(400, 400, 400))
    est = rs.MeanMatching().fit(X, z)
    moved = X.copy()
    moved[z == 1] += 3
    with pytest.raises(CertificateError, match="means of 1"):
        est.verify(moved, z)
