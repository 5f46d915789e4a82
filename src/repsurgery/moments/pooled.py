"""The pooled covariance of several classes, how far each class is drawn towards it, and the moments that result."""

from collections.abc import Iterable

import numpy as np

from repsurgery.arrays import Matrix
from repsurgery.linalg.whitening import Whitening, whitening_of, whitening_of_factor
from repsurgery.moments.accumulate import triangle
from repsurgery.moments.checks import coarsest
from repsurgery.moments.moments import Moments

__all__ = ["blend", "pool", "supported_alpha", "whitening"]


def pool(classes: Iterable[Moments]) -> Moments:
    """Return moments whose covariance is Σ_p = Σ n_c Σ_c / Σ n_c, the mean within-class covariance.

    Their mean is that of all rows, but the spread between the class means is left out.
    """
    first, *others = classes
    pooled = first
    for m in others:
        weight = pooled.weight + m.weight
        mean = pooled.mean + (m.weight / weight) * (m.mean - pooled.mean)
        dense, factor = _sum(pooled, m, 1.0, 1.0)
        pooled = Moments(pooled.count + m.count, weight, mean, dense, factor, *coarsest(pooled, m))
    return pooled


def supported_alpha(m: Moments, pooled: Moments) -> float:
    """Return how far the rows of ``m`` leave its covariance undecided between Σ and Σ_p: 0 not at all, 1 wholly.

    In coordinates in which Σ_p = I on its range, of dimension r, the estimate S̃ of n independent Gaussian rows has the
    mean squared error ((tr S̃)² + tr S̃²)/n; α is this error divided by the squared distance ‖S̃ − I‖² that the class
    keeps from the pool, and at most 1. One independent row, or equal rows, say nothing about a covariance: α = 1
    (test_one_row_or_equal_rows_say_nothing_about_a_covariance).

    Guarantees
    ----------
    α is the same in all coordinates: an invertible linear map of the rows does not change it
    (test_automatic_alpha_does_not_depend_on_the_coordinates).
    It falls to 0 as rows are added to classes of different covariances, and stays near 1 where they are equal
    (test_automatic_alpha_falls_to_zero_where_covariances_differ, test_automatic_alpha_is_one_where_covariances_agree).
    """
    n = m.effective_count
    if n <= 1:
        return 1.0
    # every whitening gives the same α, because traces and norms do not change under rotations
    T = whitening(pooled).apply(m.root().T)
    S = T @ T.T
    error = (float(np.trace(S)) ** 2 + float(np.square(S).sum())) / n
    S[np.diag_indices_from(S)] -= 1.0
    distance = float(np.square(S).sum())
    return error / distance if 0 < error < distance else 1.0


def whitening(m: Moments) -> Whitening:
    """Return the whitening of the covariance of ``m``, without squaring a factor."""
    if m.factor is not None:
        return whitening_of_factor(m.root(), m.rank_tolerance, m.least_spread(), m.rounding)
    return whitening_of(m.covariance, m.rank_tolerance, m.least_spread(), m.rounding)


def blend(m: Moments, other: Moments, pooled: Moments, alpha: float) -> Moments:
    """Return moments with the mean of ``m`` and the covariance (1 − α) Σ + α Σ_p, for ``pooled`` of these two classes.

    With α = 1 both classes get the same arrays, so that the map between them has W = I exactly.
    """
    if alpha == 1:
        return pooled.derived(count=m.count, mean=m.mean, residue=m.residue)
    # (1 − α) Σ + α Σ_p = (1 − απ) Σ + απ Σ_other, where π is the other class's share of the rows
    lent = alpha * other.weight / (m.weight + other.weight)
    dense, factor = _sum(m, other, 1.0 - lent, lent * m.weight / other.weight)
    return Moments(m.count, m.weight, m.mean, dense, factor, *coarsest(m, other), m.residue)


def _sum(a: Moments, b: Moments, share_a: float, share_b: float) -> tuple[Matrix | None, Matrix | None]:
    """Return the weighted sum of two scatters: dense, or as a factor where both together have few rows."""
    if a.factor is not None and b.factor is not None and a.count + b.count < a.dim:
        return None, triangle(np.vstack([np.sqrt(share_a) * a.factor, np.sqrt(share_b) * b.factor]))
    return share_a * a.scatter + share_b * b.scatter, None
