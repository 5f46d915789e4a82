import numpy as np
import pytest
from scipy.special import ndtri
from sklearn.metrics import roc_auc_score

from repsurgery.errors import DataError
from repsurgery.metrics.ranking import auc_interval


def drawn(rng, *, area, m, n):
    """Return which rows are positive, and normal scores with this true area under the curve."""
    scores = np.concatenate([rng.normal(ndtri(area) * np.sqrt(2), 1, m), rng.normal(0, 1, n)])
    return np.arange(m + n) < m, scores


@pytest.mark.parametrize(("m", "n"), [(10, 10), (10, 40), (100, 100)])
@pytest.mark.parametrize("area", [0.5, 0.75, 0.95, 0.99])
def test_intervals_of_areas_cover(area, m, n):
    rng, repeats = np.random.default_rng(0), 400
    intervals = [auc_interval(*drawn(rng, area=area, m=m, n=n)) for _ in range(repeats)]
    covered = np.mean([interval.low <= area <= interval.high for interval in intervals])
    three_errors = 3 * np.sqrt(0.95 * 0.05 / repeats)
    assert covered > 0.95 - three_errors
    # the counter-check: at the value .5, intervals of the level .8 cover visibly less often
    if area == 0.5:
        rng = np.random.default_rng(0)
        narrow = [auc_interval(*drawn(rng, area=area, m=m, n=n), level=0.8) for _ in range(repeats)]
        assert np.mean([interval.low <= area <= interval.high for interval in narrow]) < 0.95 - three_errors


def test_the_interval_contains_the_area_and_is_not_a_point():
    positive = np.arange(20) < 10
    separated = auc_interval(positive, positive.astype(float))
    assert separated.value == separated.high == 1
    # θ = .8 solves 1 − θ = 1.96² θ (1 + 9 (1 − θ)/(2 − θ) + 9 θ/(1 + θ)) / 100: .2 against 1.96² × .052 = .1998
    assert separated.low == pytest.approx(0.8, abs=0.001)
    reversed_ = auc_interval(positive, 1.0 - positive)
    assert reversed_.value == reversed_.low == 0
    assert reversed_.high == pytest.approx(1 - separated.low)
    rng = np.random.default_rng(0)
    for area in (0.02, 0.3, 0.5, 0.98):
        rows = drawn(rng, area=area, m=12, n=30)
        interval = auc_interval(*rows)
        assert interval.value == roc_auc_score(*rows)
        assert 0 <= interval.low < interval.value < interval.high <= 1


def test_exchanging_the_classes_reflects_the_interval():
    positive, scores = drawn(np.random.default_rng(1), area=0.8, m=15, n=25)
    one, other = auc_interval(positive, scores), auc_interval(~positive, scores)
    assert (one.low, one.high) == pytest.approx((1 - other.high, 1 - other.low))


def test_one_class_alone_has_no_area():
    with pytest.raises(DataError, match="at least one of each"):
        auc_interval([True, True], np.array([0.1, 0.2]))
