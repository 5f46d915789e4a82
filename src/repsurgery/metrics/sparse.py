"""Bounds of a mean most of whose rows share one value: they allow for rare rows that the sample does not show."""

import numpy as np
from scipy.stats import binomtest, chi2

from repsurgery.arrays import Vector

__all__ = ["sparse_bounds"]


def sparse_bounds(rows: Vector, level: float, *, scale: float, either_side: bool) -> tuple[float, float] | None:
    """Return bounds of the mean of rows (n,) of which more than half, but not all, have the same value; else None.

    The mean lies beside the common value by the share of rows above it times their mean amount, less the same of rows
    below it. The share has its exact interval (Clopper and Pearson, 1934) and the amount that of an exponential law, to
    whose upper bound half a row of the mean amount is added; the intervals are joined by their squared distances from
    the estimates (MOVER; Zou and Donner, 2008). No bound lies beyond the largest amount that was seen.

    Parameters
    ----------
    rows : (n,) array
    level : float
    scale : float
        The largest number that rows were computed from; rows that differ by its rounding alone count as equal.
    either_side : bool
        Whether rows may lie on both sides of the common value though the sample shows one, as differences may.
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
    """Return what positive amounts (k,) of n rows add to the mean, with bounds; ``unseen`` is theirs where k is 0."""
    k = len(amounts)
    share = binomtest(k, n).proportion_ci(level, method="exact")
    if k == 0:
        return 0.0, 0.0, share.high * unseen
    amount, found = float(amounts.mean()), float(amounts.sum()) / n
    # the mean of k exponential amounts is their expectation times a chi-square over its 2k degrees of freedom
    least = 2 * k / chi2.ppf((1 + level) / 2, 2 * k)
    most = (2 * k + 1) / chi2.ppf((1 - level) / 2, 2 * k + 1)
    low = found - np.hypot(amount * (k / n - share.low), found * (1 - least))
    high = found + np.hypot(amount * (share.high - k / n), found * (most - 1))
    return found, float(max(low, 0.0)), float(high)
