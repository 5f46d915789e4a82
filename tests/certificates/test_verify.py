"""What `verify` promises: its level on any kind of data, and that no power is not support."""

import numpy as np
import pytest
from benchmarks.verification import KINDS, METHODS, SIZES, verdicts
from scipy.stats import binom

import repsurgery as rs
from repsurgery.certificates.verify import LEVEL, Verification
from repsurgery.errors import CertificateError
from tests.strategies import make_concept

REPEATS = 12
UNEXPECTED = 1e-4
"""How seldom a test of one cell fails by chance where the level holds exactly."""


@pytest.mark.parametrize("kind", KINDS)
def test_false_alarms_stay_below_the_level_on_twelve_kinds_of_data(kind):
    small = [name for name in SIZES if name != "2,000 fitted, 2,000 new"]
    alarms = [
        verdicts(kind, method, sizes, left=0.0, repeats=REPEATS, seed=7)["contradicted"]
        for method in METHODS
        for sizes in small
    ]
    assert max(alarms) <= binom.isf(UNEXPECTED, REPEATS, LEVEL)
    assert sum(alarms) <= binom.isf(UNEXPECTED, REPEATS * len(alarms), LEVEL)


@pytest.mark.parametrize("method", METHODS)
def test_a_map_that_leaves_a_fifth_of_the_gap_is_noticed(method):
    sizes = "2,000 fitted, 2,000 new"
    right = verdicts("source three times as wide", method, sizes, left=0.0, repeats=5)
    weak = verdicts("source three times as wide", method, sizes, left=0.2, repeats=5)
    assert right == {"supported": 5}
    assert weak == {"contradicted": 5}


def test_no_power_is_not_support():
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1], 2000)

    def draw():
        return rng.normal(size=(4000, 20)) * np.where(z == 0, 2.0, 1.0)[:, None] + np.outer(z == 0, np.full(20, 1.0))

    X, fresh = draw(), draw()
    est = rs.MiMiC().fit(X, z)
    few = np.r_[0:30, 2000:2030]
    many, scarce = rs.verify(est.steering_, fresh, z), rs.verify(est.steering_, fresh[few], z[few])
    assert many.verdict == "supported" and many.power > 0.5 and many.p_value > many.level
    assert scarce.verdict == "cannot tell" and scarce.power < 0.5
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
