"""What both adapters need: a Gaussian as moments, and the map, the distance and the barycentre of such moments."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import repsurgery as rs

__all__ = ["barycentre", "distance", "gaussian", "transport"]


def gaussian(mean: Any, covariance: Any, weight: float = 1.0) -> rs.Moments:
    """Return moments with this mean (d,) and covariance (d, d); more rows than features, so that any is possible."""
    mean, S = (np.asarray(part) for part in (mean, covariance))
    mean, S = (part.astype(np.result_type(part, np.float64)) for part in (mean.ravel(), S * weight))
    return rs.Moments(2 * len(S), weight, mean, S, None)


def transport(source: rs.Moments, target: rs.Moments, *, ridge: float = 0.0) -> rs.AffineMap:
    """Return MiMiC's map."""
    return _mimic(source, target, ridge).map_


def distance(source: rs.Moments, target: rs.Moments, *, ridge: float = 0.0) -> float:
    """Return the 2-Wasserstein distance: the root of the optimal cost that MiMiC's certificate states."""
    return float(np.sqrt(_mimic(source, target, ridge).certificate_.optimal_cost))


def _mimic(source: rs.Moments, target: rs.Moments, ridge: float) -> rs.MiMiC:
    moments = rs.ClassMoments({0: source, 1: target})
    return rs.MiMiC(shrinkage="ridge" if ridge else "none", ridge=ridge, gate="always").fit_moments(moments)


def barycentre(covariances: Sequence[NDArray[Any]], weights: Sequence[float]) -> NDArray[np.float64]:
    """Return the covariance that `BarycenterErasure` gives every class."""
    pairs = zip(covariances, weights, strict=True)
    moments = rs.ClassMoments({i: gaussian(np.zeros(len(S)), S, float(w)) for i, (S, w) in enumerate(pairs)})
    W = rs.BarycenterErasure().fit_moments(moments).maps_[0].weight
    return W @ moments[0].covariance @ W.T
