"""Confidence intervals: exact for shares, BCa for other statistics, bias-aware where noise inflates a statistic."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest, chi2

from repsurgery.arrays import Vector
from repsurgery.errors import DataError

__all__ = [
    "Correction",
    "Interval",
    "inflated_interval",
    "paired_share_interval",
    "resampled_interval",
    "share_interval",
    "sparse_bounds",
]

NOTABLE_BIAS = 0.25
"""In standard errors; a smaller bias may be ignored (Efron and Tibshirani, 1993, section 10.3)."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with the bounds of its confidence interval, which always contains the value.

    Attributes
    ----------
    value : float
        On the original rows.
    low, high : float
    undefined : int
        Resamples on which the statistic was undefined; the interval ignores them.
    """

    value: float
    low: float
    high: float
    undefined: int


@dataclass(frozen=True, slots=True)
class Correction:
    """Bias ``z0`` and acceleration ``a`` of BCa (Efron, 1987), which map levels to quantiles of the resamples.

    With both 0 the levels are plain percentiles.
    """

    z0: float = 0.0
    a: float = 0.0

    @classmethod
    def of(cls, value: float, drawn: Vector, left_out: Vector) -> "Correction":
        """Return the correction of a statistic, counting ties half; plain percentiles where BCa is not defined.

        Equal to `scipy.stats.bootstrap` on the same resamples (test_bca_is_that_of_scipy).
        """
        below = (np.mean(drawn < value) + np.mean(drawn <= value)) / 2
        u = left_out.mean() - left_out
        squares = float(u @ u)
        if not 0 < below < 1 or not np.isfinite(squares) or squares == 0:
            return cls()
        return cls(float(ndtri(below)), float((u**3).sum() / (6 * squares**1.5)))

    def quantiles(self, levels: Vector) -> Vector:
        """Return the quantiles of the resamples that bound ``levels``; plain ones where BCa is not defined."""
        z = self.z0 + ndtri(levels)
        inside = 1 - self.a * z
        return ndtr(self.z0 + z / inside) if (inside > 0).all() else levels

    def level(self, share: float) -> float:
        """Return the level whose bound has a ``share`` of the resamples below it: the inverse of `quantiles`."""
        w = ndtri(share) - self.z0
        inside = 1 + self.a * w
        return float(ndtr(w / inside - self.z0)) if inside > 0 else share


def share_interval(hits: int, n: int, level: float) -> Interval:
    """Return the exact interval of a share (Clopper and Pearson, 1934): never outside [0, 1], never empty."""
    bounds = binomtest(hits, n).proportion_ci(level, method="exact")
    return Interval(hits / n, float(bounds.low), float(bounds.high), 0)


def paired_share_interval(gained: int, lost: int, n: int, level: float) -> Interval:
    """Return the interval of the difference of two shares of the same ``n`` rows, of which some gained and some lost.

    The interval of Bonett and Price (2012) adds one changed row in either direction. It has a positive width even if no
    row changed, because rows that change rarely may be absent from a sample.
    """
    up, down = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    value, half = (gained - lost) / n, ndtri((1 + level) / 2) * np.sqrt((up + down - (up - down) ** 2) / (n + 2))
    low, high = max(-1.0, up - down - half), min(1.0, up - down + half)
    return Interval(value, float(min(low, value)), float(max(high, value)), 0)


def resampled_interval(
    name: str, value: float, drawn: Vector, left_out: Vector, level: float
) -> tuple[Interval, Correction, Vector]:
    """Return a statistic's interval, with the correction and the shifts of the resamples that produced it.

    It is a BCa interval, or plain percentiles where BCa is not defined, or `inflated_interval` where the bias of the
    resamples exceeds `NOTABLE_BIAS` by more than so many resamples show by chance.

    Parameters
    ----------
    name : str
        For the error message if no resample defines the statistic.
    value : float
    drawn : (r,) array
        The statistic on each resample, NaN where it is not defined.
    left_out : (m,) array
        The statistic without each row, or each block of rows.
    level : float
    """
    known = defined(name, drawn)
    bias, spread = float(known.mean() - value), float(known.std())
    if abs(bias) > spread * (NOTABLE_BIAS + 3 / np.sqrt(len(known))):
        low, high = inflated_interval(value, known, level)
        return Interval(value, low, high, len(drawn) - len(known)), Correction(), np.array([bias, 2 * bias])
    correction = Correction.of(value, known, left_out)
    low, high = np.quantile(known, correction.quantiles(_tails(level)))
    interval = Interval(value, float(min(low, value)), float(max(high, value)), len(drawn) - len(known))
    return interval, correction, np.zeros(1)


def inflated_interval(value: float, drawn: Vector, level: float, noise: float | None = None) -> tuple[float, float]:
    """Return the bounds of a statistic that sampling noise inflates, once in the sample and twice in a resample.

    The bounds cover both the average over samples of this size, for which the resamples are shifted by their bias once,
    and the value without noise, for which they are shifted twice. Noise adds to the square of a length, such as the
    root mean square of gaps, so that statistics that are never negative are shifted as squares.

    Parameters
    ----------
    value : float
    drawn : (r,) array
    level : float
    noise : float, optional
        Another estimate of what noise added to the square of the value; used if it exceeds that of the resamples.
    """
    length = value >= 0 and bool((drawn >= 0).all())
    there, back = (np.square, np.sqrt) if length else (np.positive, np.positive)
    moved, centre = there(drawn), float(there(value))
    once = float(moved.mean()) - centre
    twice = once + (once if noise is None else max(once, noise))
    low, high = np.quantile(moved, _tails(level))
    bounds = min(low - once, low - twice, centre), max(high - once, high - twice, centre)
    low, high = back(np.maximum(bounds, 0.0)) if length else bounds
    # squaring and taking the root may miss the value by rounding
    return float(min(low, value)), float(max(high, value))


def defined(name: str, drawn: Vector) -> Vector:
    """Return the resamples on which the statistic is defined; raise a `DataError` if there are none."""
    known: Vector = drawn[np.isfinite(drawn)]
    if len(known) == 0:
        raise DataError(f"{name!r} had no value in any of {len(drawn)} resamples. Give more rows, or leave it out.")
    return known


def _tails(level: float) -> Vector:
    return np.array([(1 - level) / 2, (1 + level) / 2])


def sparse_bounds(rows: Vector, level: float, *, scale: float, either_side: bool) -> tuple[float, float] | None:
    """Return bounds of the mean of rows (n,) of which more than half, but not all, have the same value; else None.

    Rare rows that the sample does not show may shift such a mean. The mean differs from the common value by the share
    of rows above it times their mean excess, minus the same for rows below it. The share gets its exact interval
    (Clopper and Pearson, 1934), the excess that of an exponential distribution, to whose upper bound half a row of mean
    excess is added; the intervals are combined by their squared distances from the estimates (MOVER; Zou and Donner,
    2008). No bound lies beyond the largest observed excess.

    Parameters
    ----------
    rows : (n,) array
    level : float
    scale : float
        The largest number that rows were computed from; rows that differ only by its rounding count as equal.
    either_side : bool
        Whether rows may lie on both sides of the common value even if the sample shows one side, as differences may.
    """
    if scale == 0:
        return None
    rounding = 1e-13 * len(rows) * scale
    _, first, counts = np.unique(np.round(rows / rounding), return_index=True, return_counts=True)
    common = float(rows[first[counts.argmax()]])
    amounts = np.where(np.abs(rows - common) <= rounding, 0.0, rows - common)
    if not len(rows) < 2 * np.sum(amounts == 0) < 2 * len(rows):
        return None
    largest = float(np.abs(amounts).max())
    (up, up_low, up_high), (down, down_low, down_high) = (
        _side(side[side > 0], len(rows), level, largest if either_side else 0.0) for side in (amounts, -amounts)
    )
    low = up - down - np.hypot(up - up_low, down_high - down)
    high = up - down + np.hypot(up_high - up, down - down_low)
    return common + float(max(low, -largest)), common + float(min(high, largest))


def _side(amounts: Vector, n: int, level: float, unseen: float) -> tuple[float, float, float]:
    """Return what positive amounts (k,) of n rows add to the mean, with bounds; ``unseen`` is their size if k is 0."""
    k = len(amounts)
    share = binomtest(k, n).proportion_ci(level, method="exact")
    if k == 0:
        return 0.0, 0.0, share.high * unseen
    amount, added = float(amounts.mean()), float(amounts.sum()) / n
    # the mean of k exponential amounts is their expectation times a chi-square over its 2k degrees of freedom
    least = 2 * k / chi2.ppf((1 + level) / 2, 2 * k)
    most = (2 * k + 1) / chi2.ppf((1 - level) / 2, 2 * k + 1)
    low = added - np.hypot(amount * (k / n - share.low), added * (1 - least))
    high = added + np.hypot(amount * (share.high - k / n), added * (most - 1))
    return added, float(max(low, 0.0)), float(high)
