"""Gaps of a population, from samples of it: the squared gap of the samples minus what their sampling error adds to it.

Rows x_i of weight share p_i have the mean x̄ = Σ p_i x_i, whose squared error is estimated by
n/(n − 1) Σ p_i² ‖x_i − x̄‖²; the same holds for the covariance, a mean of (x_i − x̄)(x_i − x̄)ᵀ, and for its trace.
Rows of one group are summed first, so that only groups need be independent.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Matrix, Vector
from repsurgery.certificates.group_rows import sums_by_group

__all__ = ["Sample", "SquaredGaps", "squared_columns", "squared_gaps"]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Centred rows (n, d), their mean, their shares of the weight, and their groups; needs two rows or groups."""

    rows: Matrix
    mean: Vector
    shares: Vector
    groups: NDArray[np.intp]

    @classmethod
    def of(cls, X: Matrix, weights: Vector | None, groups: NDArray[np.intp] | None) -> "Sample":
        """Return the sample of rows (n, d)."""
        w = np.ones(len(X)) if weights is None else weights
        shares = w / w.sum()
        first = X[0]
        shift = shares @ (X - first)
        return cls(X - first - shift, first + shift, shares, np.arange(len(X)) if groups is None else groups)

    def noise(self, scores: NDArray[np.float64]) -> float:
        """Return the squared error of Σ p_i s_i, for scores (n,) or (n, m) whose weighted mean is zero."""
        weighted = scores * (self.shares if scores.ndim == 1 else self.shares[:, None])
        sums = sums_by_group(weighted, self.groups)
        return float(np.square(sums).sum()) * len(sums) / (len(sums) - 1)


@dataclass(frozen=True, slots=True)
class SquaredGaps:
    """Estimates of ‖μ_a − μ_b‖², ‖Σ_a − Σ_b‖²_F, EBBN² and ‖Σ_b‖²_F; by chance an estimate may be negative."""

    means: float
    covariances: float
    neighbours: float
    scale: float


def squared_gaps(a: Sample, b: Sample) -> SquaredGaps:
    """Return the squared gaps of the populations of two samples."""
    delta = a.mean - b.mean
    errors = [s.noise(s.rows) for s in (a, b)]
    means = float(delta @ delta) - sum(errors)
    traces = [float(s.shares @ np.square(s.rows).sum(axis=1)) for s in (a, b)]
    # a sample's covariance lacks the error of its mean
    grown = [1 + error / trace if trace > 0 else 1.0 for error, trace in zip(errors, traces, strict=True)]
    bias = traces[0] * grown[0] - traces[1] * grown[1] - means
    wander = sum(s.noise(np.square(s.rows).sum(axis=1) - t) for s, t in zip((a, b), traces, strict=True))
    wander += 4 * sum(s.noise(s.rows @ delta) for s in (a, b))
    norms, errors_of_covariances, inner = _second_moments(a, b)
    squares = [norm * g**2 for norm, g in zip(norms, grown, strict=True)]
    noise = [error * g**2 for error, g in zip(errors_of_covariances, grown, strict=True)]
    covariances = squares[0] + squares[1] - 2 * inner * grown[0] * grown[1] - sum(noise)
    return SquaredGaps(means, covariances, bias**2 - wander, squares[1] - noise[1])


def _second_moments(a: Sample, b: Sample) -> tuple[list[float], list[float], float]:
    """Return ‖C‖²_F of both covariances, the squared errors of both, and tr(C_a C_b)."""
    few = max(len(a.rows), len(b.rows)) <= a.rows.shape[1]
    if few:
        inner = float(a.shares @ np.square(a.rows @ b.rows.T) @ b.shares)
    else:
        C = [s.rows.T @ (s.shares[:, None] * s.rows) for s in (a, b)]
        inner = float((C[0] * C[1]).sum())
    norms, errors = [], []
    for i, s in enumerate((a, b)):
        along = np.square(s.rows @ s.rows.T) @ s.shares if few else (s.rows @ C[i] * s.rows).sum(axis=1)
        norm = float(s.shares @ along)
        norms.append(norm)
        errors.append(_error_of_covariance(s, along, norm))
    return norms, errors, inner


def _error_of_covariance(s: Sample, along: Vector, norm: float) -> float:
    """Return the squared error of C = Σ p_i x_i x_iᵀ; ``along`` are x_iᵀ C x_i, and ``norm`` is ‖C‖²_F."""
    order = np.argsort(s.groups, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(s.groups[order])) + 1)
    if len(parts) == len(s.rows):
        squares = np.square(np.square(s.rows).sum(axis=1)) - 2 * along + norm
        total = float(np.square(s.shares) @ squares)
    else:
        total = 0.0
        for part in parts:
            p = s.shares[part]
            total += float(p @ np.square(s.rows[part] @ s.rows[part].T) @ p)
            total += float(p.sum()) * (float(p.sum()) * norm - 2 * float(p @ along[part]))
    return total * len(parts) / (len(parts) - 1)


def squared_columns(h: Sample, z: Matrix) -> Vector:
    """Return the squared norms (k,) of the population's covariances with the columns of centred numbers (n, k)."""
    squared = []
    for column in z.T:
        products = h.rows * column[:, None]
        covariance = h.shares @ products
        squared.append(float(covariance @ covariance) - h.noise(products - covariance))
    return np.array(squared)
