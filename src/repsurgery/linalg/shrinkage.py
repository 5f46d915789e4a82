"""Shrinkage of a covariance towards a multiple of the identity, as two numbers.

Every choice offered has the form Σ̃ = keep · Σ + floor · I, so it streams, it costs nothing to apply,
and what it moves can be stated exactly (`moved`).
"""

from dataclasses import dataclass

import numpy as np

from repsurgery.arrays import Matrix

__all__ = ["NO_SHRINKAGE", "Shrinkage", "absolute_ridge", "moved", "oas", "relative_ridge", "towards_identity"]


@dataclass(frozen=True, slots=True)
class Shrinkage:
    """Σ̃ = ``keep`` · Σ + ``floor`` · I."""

    keep: float = 1.0
    floor: float = 0.0


NO_SHRINKAGE = Shrinkage()


def absolute_ridge(ridge: float) -> Shrinkage:
    """Σ + ridge · I, as the paper's experiments and POT's ``reg``."""
    return Shrinkage(1.0, ridge)


def relative_ridge(ridge: float, trace: float, dim: int) -> Shrinkage:
    """Σ + ridge · (tr Σ / d) · I: the same choice at every scale of the data."""
    return Shrinkage(1.0, ridge * trace / dim)


def towards_identity(alpha: float, trace: float, dim: int) -> Shrinkage:
    """(1 − α) Σ + α (tr Σ / d) I."""
    return Shrinkage(1.0 - alpha, alpha * trace / dim)


def oas(trace: float, squared_norm: float, n: float, dim: int) -> Shrinkage:
    """Oracle approximating shrinkage (Chen et al. 2010, eq. 23) as scikit-learn computes it.

    Parameters
    ----------
    trace, squared_norm : float
        tr Σ and ‖Σ‖²_F of the 1/n covariance.
    n, dim : float, int
        Rows (or total weight) and features.
    """
    alpha, mu = squared_norm / dim**2, trace / dim
    numerator = alpha + mu**2
    denominator = (n + 1.0) * (alpha - mu**2 / dim)
    weight = 1.0 if denominator <= 0 else min(numerator / denominator, 1.0)
    return towards_identity(weight, trace, dim)


def moved(W: Matrix, S1: Matrix, s0: Shrinkage, s1: Shrinkage) -> float:
    """Return ‖W Σ₀ Wᵀ − Σ₁‖_F as the ridge identity gives it, for W that is exact between the shrunk covariances.

    W (a₀Σ₀ + c₀I) Wᵀ = a₁Σ₁ + c₁I leaves W Σ₀ Wᵀ − Σ₁ = [(a₁ − a₀) Σ₁ + c₁ I − c₀ W Wᵀ] / a₀.
    """
    if s0 == s1 == NO_SHRINKAGE:
        return 0.0
    if s0.keep == 0:
        return float("inf")
    residual = (s1.keep - s0.keep) * S1 - s0.floor * (W @ W.T)
    residual[np.diag_indices_from(residual)] += s1.floor
    return float(np.linalg.norm(residual) / s0.keep)
