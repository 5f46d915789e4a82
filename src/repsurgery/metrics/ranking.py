"""`auc_interval`: how well scores rank the texts of one label above those of another, with a confidence interval."""

from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri
from sklearn.metrics import roc_auc_score

from repsurgery.arrays import Vector
from repsurgery.errors import DataError
from repsurgery.metrics.intervals import Interval

__all__ = ["auc_interval"]

_APART = 1e-9
"""A bound differs from the value by at least this much; at 0 and 1 the value itself also solves the equation."""


def auc_interval(positive: Any, scores: Vector, *, level: float = 0.95) -> Interval:
    """Return the area under the ROC curve with the interval of Newcombe (2006, method 5).

    The bounds are the areas θ from which the value differs by z standard errors at θ, where the error is that of Hanley
    and McNeil (1982) with the mean of the two class sizes for either. Unlike resampled intervals and that of DeLong, it
    does not shrink to a point where the scores separate the classes: 10 + 10 separated rows give [0.80, 1].

    Parameters
    ----------
    positive : (n,) booleans
        Which rows should have the higher scores.
    scores : (n,) array
    level : float

    Guarantees
    ----------
    The interval contains the value and lies within [0, 1] (test_the_interval_contains_the_area_and_is_not_a_point).
    It covers the true area about as often as it states (test_intervals_of_areas_cover).
    Exchanging the classes reflects it (test_exchanging_the_classes_reflects_the_interval).
    """
    positive = np.asarray(positive, dtype=bool)
    first, second = int(positive.sum()), int((~positive).sum())
    if not first or not second:
        raise DataError(f"auc_interval got {first} positive and {second} negative rows. Give at least one of each.")
    area = float(roc_auc_score(positive, scores))
    z = float(ndtri((1 + level) / 2))
    return Interval(area, _lower(area, first, second, z), 1 - _lower(1 - area, first, second, z), 0)


def _lower(area: float, m: int, n: int, z: float) -> float:
    """Return the θ below ``area`` that is z standard errors at θ away from it."""
    if area <= _APART:
        return 0.0
    k = (m + n) / 2 - 1

    def distance(t: float) -> float:
        variance = t * (1 - t) * (1 + k * (1 - t) / (2 - t) + k * t / (1 + t)) / (m * n)
        return area - t - z * float(np.sqrt(variance))

    return float(brentq(distance, 0.0, area - _APART))
