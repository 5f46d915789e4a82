"""Closed forms of two `Moments`, without rows: gaps, expected neighbour bias, least-squares probes."""

from collections.abc import Sequence

import numpy as np
from scipy import linalg
from scipy.linalg import blas, lapack

from repsurgery.arrays import Matrix, Vector, row_blocks
from repsurgery.linalg.spectrum import cholesky_or_none, condition_estimate, fortran, symmetric_rank
from repsurgery.moments.accumulate import triangle, without_mean
from repsurgery.moments.moments import Moments

__all__ = [
    "covariance_distance",
    "covariance_gap",
    "expected_neighbour_bias",
    "least_squares_probe",
    "mean_gap",
    "neighbour_bias_of_distinct_rows",
    "relative_gap",
    "variance_gap",
]

CANCELLATION = 1e-6
"""Below this share of the subtracted terms, a difference of squares has lost too many digits."""


def mean_gap(a: Moments, b: Moments) -> float:
    """‖μ_a − μ_b‖."""
    return float(np.linalg.norm(a.mean - b.mean))


def covariance_gap(a: Moments, b: Moments) -> float:
    """‖Σ_a − Σ_b‖_F / ‖Σ_b‖_F; 0 where both vanish, infinite where only Σ_b does."""
    return relative_gap(covariance_distance(a, b), float(np.sqrt(b.squared_norm)))


def variance_gap(a: Moments, b: Moments) -> float:
    """Return the same for the diagonals alone: ‖diag Σ_a − diag Σ_b‖ / ‖diag Σ_b‖."""
    return relative_gap(float(np.linalg.norm(a.variance - b.variance)), float(np.linalg.norm(b.variance)))


def relative_gap(gap: float, scale: float) -> float:
    """Return gap / scale; 0 where both vanish, infinite where only the scale does."""
    if scale > 0:
        return gap / scale
    return 0.0 if gap == 0 else float("inf")


def covariance_distance(a: Moments, b: Moments) -> float:
    """‖Σ_a − Σ_b‖_F, without a d × d matrix where both are factors of few rows."""
    if a.factor is not None and b.factor is not None and len(a.factor) + len(b.factor) < a.dim:
        return _factor_distance(a.root(), b.root())
    Sa, Sb = a.scatter, b.scatter
    blocks = row_blocks(a.dim, a.dim)
    return float(np.sqrt(sum(np.square(Sa[i] / a.weight - Sb[i] / b.weight).sum() for i in blocks)))


def _factor_distance(Ra: Matrix, Rb: Matrix) -> float:
    """‖RaᵀRa − RbᵀRb‖_F without a d × d matrix."""
    inner = [float(np.square(P @ Q.T).sum()) for P, Q in ((Ra, Ra), (Rb, Rb), (Ra, Rb))]
    squared = inner[0] + inner[1] - 2 * inner[2]
    if squared > CANCELLATION * (inner[0] + inner[1]):
        return float(np.sqrt(squared))
    # nearly equal: T J Tᵀ on the joint row space has the same norm, and cancels before it is squared
    T = triangle(np.hstack([Ra.T, Rb.T]))
    signs = np.repeat([1.0, -1.0], [len(Ra), len(Rb)])
    return float(np.linalg.norm((T * signs) @ T.T))


def expected_neighbour_bias(source: Moments, target: Moments) -> float:
    """EBBN = |E‖H₀ − H₀′‖² − E‖H₀ − H₁‖²| = |tr Σ₀ − tr Σ₁ − ‖μ₁ − μ₀‖²| (self pairs included)."""
    return abs(source.trace - target.trace - mean_gap(source, target) ** 2)


def neighbour_bias_of_distinct_rows(source: Moments, target: Moments) -> float:
    """Return EBBN as a U-statistic: without the n₀ pairs of a source row with itself; needs two source rows."""
    within = 2 * source.trace * source.count / (source.count - 1)
    return abs(within - (source.trace + target.trace + mean_gap(source, target) ** 2))


def least_squares_probe(classes: Sequence[Moments]) -> float:
    """Return the share of concept variance that the best linear least-squares probe explains, in [0, 1].

    For two classes this is R²; for k classes Pillai's trace divided by k − 1. It is 0 exactly when all
    class means coincide.
    """
    weights = np.array([m.weight for m in classes])
    weights /= weights.sum()
    centre = sum(w * m.mean for w, m in zip(weights, classes, strict=True))
    between = np.sqrt(weights)[:, None] * np.array([m.mean - centre for m in classes])
    # the means of a constant column may differ by their last bit, which would tell the classes apart
    between[:, (np.abs(between) <= 8 * np.finfo(np.float64).eps * np.abs(centre)).all(axis=0)] = 0.0
    scale = np.linalg.norm(centre) + np.sqrt(sum(w * m.trace for w, m in zip(weights, classes, strict=True)))
    if np.linalg.norm(between) <= len(centre) * np.finfo(np.float64).eps * scale:
        return 0.0  # the means coincide up to rounding
    explained = (
        _explained_dense(classes, weights, between)
        if sum(m.count for m in classes) >= classes[0].dim
        else _explained_by_factors(classes, weights, without_mean(between, np.sqrt(weights)))
    )
    return float(min(max(explained / (len(classes) - 1), 0.0), 1.0))


def _explained_dense(classes: Sequence[Moments], weights: Vector, between: Matrix) -> float:
    S = classes[0].scatter * (weights[0] / classes[0].weight)
    for w, m in zip(weights[1:], classes[1:], strict=True):
        S += m.scatter * (w / m.weight)
    for row in between:
        S = blas.dger(1.0, row, row, a=fortran(S), overwrite_a=1)
    R = cholesky_or_none(S)
    if R is not None:
        return float(np.square(lapack.dtrtrs(R, between.T, lower=0, trans=1)[0]).sum())
    scale = np.sqrt(np.diagonal(S))
    scale[scale == 0] = 1.0
    values, V = linalg.eigh(S / scale / scale[:, None], driver="evd", check_finite=False)
    keep = slice(len(values) - symmetric_rank(values, max(m.rank_tolerance for m in classes)), None)
    return float((np.square(V[:, keep].T @ (between / scale).T) / values[keep, None]).sum())


def _explained_by_factors(classes: Sequence[Moments], weights: Vector, between: Matrix) -> float:
    within = [np.sqrt(w) * m.root() for w, m in zip(weights, classes, strict=True)]
    # k centred means are k − 1 rows
    stack = np.vstack([*within, between])
    tolerance = max(m.rank_tolerance for m in classes)
    K = stack @ stack.T
    R = cholesky_or_none(K)
    if R is not None and condition_estimate(K, R) < 1e10:
        return float(len(classes) - 1)  # independent rows: a probe can give each of them any value
    # otherwise: the hat matrix of the stacked rows, restricted to the rows of the class means
    U, s, _ = linalg.svd(stack, full_matrices=False, check_finite=False)
    return float(np.square(U[1 - len(classes) :, s > s[0] * tolerance]).sum())
