"""Chan's pairwise merge of (weight, mean, scatter), and its inverse, as functions of arrays."""

import numpy as np
from scipy import linalg
from scipy.linalg import blas

from repsurgery.arrays import Matrix, Vector
from repsurgery.linalg.spectrum import fortran
from repsurgery.moments.accumulate import Centre, exact_sum, triangle

__all__ = [
    "REMOVAL_TOLERANCE",
    "downdate_factor",
    "downdate_scatter",
    "factor_of_scatter",
    "gap_between",
    "merge_factors",
    "merge_mean",
    "merge_scatter",
    "moved",
    "remove_mean",
]

REMOVAL_TOLERANCE = {
    "float64": 64 * float(np.finfo(np.float64).eps),
    "float32-products": 64 * float(np.finfo(np.float32).eps),
}
"""A removal may leave a negative variance up to d times this share of the former variances: that is rounding."""


def gap_between(a: Centre, b: Centre) -> Vector:
    """Return the mean of b minus that of a; a common offset costs no digits."""
    return (b[0] - a[0]) + (b[1] - a[1])


def merge_mean(wa: float, a: Centre, wb: float, b: Centre) -> Centre:
    """Return the mean of both, computed as a step from the heavier one so that equal means stay equal."""
    if wa < wb:
        return merge_mean(wb, b, wa, a)
    return moved(a, gap_between(a, b) * (wb / (wa + wb)))


def moved(centre: Centre, step: Vector) -> Centre:
    """Return the mean plus ``step``."""
    mean, residue = exact_sum(centre[0], step)
    return exact_sum(mean, residue + centre[1])


def merge_scatter(Sa: Matrix, Sb: Matrix, gap: Vector, wa: float, wb: float) -> Matrix:
    """Return Sa + Sb + (wa wb / (wa + wb)) gap gapᵀ, where gap is the difference of the means."""
    v = gap * np.sqrt(wa * wb / (wa + wb))
    return _add_outer(Sa + Sb, v, 1.0)


def _add_outer(S: Matrix, v: Vector, sign: float) -> Matrix:
    added: Matrix = blas.dger(sign, v, v, a=fortran(S), overwrite_a=1)
    return added


def merge_factors(Ra: Matrix, Rb: Matrix, gap: Vector, wa: float, wb: float) -> Matrix:
    """Return the triangular factor of the merged scatter."""
    return triangle(np.vstack([Ra, Rb, gap * np.sqrt(wa * wb / (wa + wb))]))


def remove_mean(wa: float, a: Centre, wb: float, b: Centre) -> Centre:
    """Return the mean of the remaining rows when b is removed from a."""
    return moved(a, gap_between(b, a) * (wb / (wa - wb)))


def downdate_scatter(
    Sa: Matrix, Sb: Matrix, gap: Vector, w: float, wb: float, *, former: Vector, rounding: float
) -> Matrix | None:
    """Return the scatter of the remaining rows, or None where it would not be positive semi-definite.

    ``gap`` is the difference of the means of the remaining rows and of b; ``w`` and ``wb`` are their weights;
    ``former`` (d,) are the sums of squares that rounding is proportional to, and ``rounding`` is a `REMOVAL_TOLERANCE`.
    """
    v = gap * np.sqrt(w * wb / (w + wb))
    S = _add_outer(Sa - Sb, v, -1.0)
    floor = rounding * len(v)
    varies = former > 0
    if np.diagonal(S)[~varies].min(initial=0.0) < -floor * former.sum():
        return None
    # in units of the former variances, so that rows that were never added show in small columns, too
    units = np.sqrt(former[varies])
    correlation = S[np.ix_(varies, varies)] / units / units[:, None]
    lowest = linalg.eigvalsh(correlation, subset_by_index=[0, 0], check_finite=False)[0] if len(units) else 0.0
    if lowest < -floor * len(units):
        return None
    # by rounding, a variance may be below zero, and a covariance beyond its variances
    most = np.sqrt(np.maximum(np.diagonal(S), 0.0))
    return np.clip(S, -np.outer(most, most), np.outer(most, most))


def factor_of_scatter(S: Matrix, former: Vector, *, rows: int) -> Matrix:
    """Return the triangular factor of what is left of a scatter (d, d), of rank ``rows`` at most; the rest is rounding.

    Rounding is proportional to the former sums of squares (d,), so columns are compared in their units.
    """
    scale = np.sqrt(former)
    unit = np.where(scale == 0, 1.0, scale)
    values, vectors = linalg.eigh(S / unit / unit[:, None], driver="evd", check_finite=False)
    keep = slice(max(len(values) - rows, 0), None)
    return triangle(np.sqrt(np.maximum(values[keep], 0.0))[:, None] * vectors[:, keep].T * scale)


def downdate_factor(
    Ra: Matrix, Rb: Matrix, gap: Vector, w: float, wb: float, *, rows: int, former: Vector, rounding: float
) -> Matrix | None:
    """Return the same as a factor, computed on the row space of Ra; the result has at most ``rows`` rows.

    Columns are brought to one scale first, so that the smallest lose no more digits than the largest.
    """
    v = gap * np.sqrt(w * wb / (w + wb))
    scale = np.sqrt(former)
    removed = np.vstack([Rb, v])
    constant = scale == 0
    if np.square(removed[:, constant]).sum() > rounding * len(v) * former.sum():
        return None
    removed[:, constant] = 0.0
    unit = np.where(constant, 1.0, scale)
    Ra, removed = Ra / unit, removed / unit
    Q = linalg.qr(Ra.T, mode="economic", check_finite=False)[0]
    inside = removed @ Q
    a = Ra @ Q
    floor = rounding * len(v) * (len(v) - constant.sum())
    if np.square(removed - inside @ Q.T).sum() > floor:
        return None
    values, vectors = linalg.eigh(a.T @ a - inside.T @ inside, check_finite=False)
    if len(values) and values[0] < -floor:
        return None
    keep = slice(max(len(values) - rows, 0), None)
    return triangle(np.sqrt(np.maximum(values[keep], 0.0))[:, None] * (Q @ vectors[:, keep]).T * scale)
