"""`Interval`, and which one a statistic gets: exact for shares, BCa for the rest, bias-aware where noise inflates."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest

from repsurgery.arrays import Vector
from repsurgery.errors import DataError

__all__ = [
    "Correction",
    "Interval",
    "inflated_interval",
    "paired_share_interval",
    "resampled_interval",
    "share_interval",
]

NOTABLE_BIAS = 0.25
"""In standard errors: less may be ignored (Efron and Tibshirani, 1993, section 10.3)."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with the bounds of its confidence interval, which always holds the value.

    Attributes
    ----------
    value : float
        On the rows as they are.
    low, high : float
    undefined : int
        Resamples in which it had no value; the interval leaves them out.
    """

    value: float
    low: float
    high: float
    undefined: int


@dataclass(frozen=True, slots=True)
class Correction:
    """Bias ``z0`` and acceleration ``a`` of BCa (Efron, 1987): which quantile of the resamples bounds which level.

    With both 0 the levels are plain percentiles.
    """

    z0: float = 0.0
    a: float = 0.0

    @classmethod
    def of(cls, value: float, drawn: Vector, left_out: Vector) -> "Correction":
        """Return the correction of a statistic, ties counted half; none where it is not defined.

        Equal to `scipy.stats.bootstrap` on the same resamples (test_bca_is_that_of_scipy).
        """
        below = (np.mean(drawn < value) + np.mean(drawn <= value)) / 2
        u = left_out.mean() - left_out
        squares = float(u @ u)
        if not 0 < below < 1 or not np.isfinite(squares) or squares == 0:
            return cls()
        return cls(float(ndtri(below)), float((u**3).sum() / (6 * squares**1.5)))

    def quantiles(self, levels: Vector) -> Vector:
        """Return the quantiles of the resamples that bound ``levels``; plain ones where BCa leaves its domain."""
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
    found = binomtest(hits, n).proportion_ci(level, method="exact")
    return Interval(hits / n, float(found.low), float(found.high), 0)


def paired_share_interval(gained: int, lost: int, n: int, level: float) -> Interval:
    """Return the interval of the difference of two shares of the same ``n`` rows, of which some gained and some lost.

    That of Bonett and Price (2012): one more row is thought to have changed in either direction. It has a width even
    where no row changed, as it must: rows that change rarely may be absent from a sample.
    """
    up, down = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    value, half = (gained - lost) / n, ndtri((1 + level) / 2) * np.sqrt((up + down - (up - down) ** 2) / (n + 2))
    low, high = max(-1.0, up - down - half), min(1.0, up - down + half)
    return Interval(value, float(min(low, value)), float(max(high, value)), 0)


def resampled_interval(
    name: str, value: float, drawn: Vector, left_out: Vector, level: float
) -> tuple[Interval, Correction, Vector]:
    """Return a statistic's interval, with the correction and the shifts of the resamples by which it was found.

    BCa; plain percentiles where BCa is not defined; `inflated_interval` where the resamples lie beside the value by
    more than `NOTABLE_BIAS`, beyond what so many resamples show by chance.

    Parameters
    ----------
    name : str
        For the error of a statistic that no resample defines.
    value : float
    drawn : (r,) array
        On each resample, NaN where it is not defined.
    left_out : (m,) array
        Without each row, or each block of rows.
    level : float
    """
    known = defined(name, drawn)
    bias, spread = float(known.mean() - value), float(known.std())
    if abs(bias) > spread * (NOTABLE_BIAS + 3 / np.sqrt(len(known))):
        low, high = inflated_interval(value, known, level)
        return Interval(value, low, high, len(drawn) - len(known)), Correction(), np.array([bias, 2 * bias])
    correction = Correction.of(value, known, left_out)
    low, high = np.quantile(known, correction.quantiles(_tails(level)))
    found = Interval(value, float(min(low, value)), float(max(high, value)), len(drawn) - len(known))
    return found, correction, np.zeros(1)


def inflated_interval(value: float, drawn: Vector, level: float, noise: float | None = None) -> tuple[float, float]:
    """Return the bounds of a statistic that sampling noise inflates, once in the sample and twice in a resample.

    They hold what samples of this size show on average, for which resamples are moved by their bias once, and what
    holds without noise, for which they are moved twice. Noise adds to the square of a length, such as the root mean
    square of gaps, so what is never negative is moved as a square.

    Parameters
    ----------
    value : float
    drawn : (r,) array
    level : float
    noise : float, optional
        A better estimate of what noise added to the square of the value than the resamples give, if it is larger.
    """
    length = value >= 0 and bool((drawn >= 0).all())
    there, back = (np.square, np.sqrt) if length else (np.positive, np.positive)
    moved, centre = there(drawn), float(there(value))
    once = float(moved.mean()) - centre
    twice = once + (once if noise is None else max(once, noise))
    low, high = np.quantile(moved, _tails(level))
    bounds = min(low - once, low - twice, centre), max(high - once, high - twice, centre)
    low, high = back(np.maximum(bounds, 0.0)) if length else bounds
    # a square and its root may miss the value by rounding
    return float(min(low, value)), float(max(high, value))


def defined(name: str, drawn: Vector) -> Vector:
    """Return the resamples that have a value; raise where none has."""
    known: Vector = drawn[np.isfinite(drawn)]
    if len(known) == 0:
        raise DataError(f"{name!r} had no value in any of {len(drawn)} resamples. Give more rows, or leave it out.")
    return known


def _tails(level: float) -> Vector:
    return np.array([(1 - level) / 2, (1 + level) / 2])
