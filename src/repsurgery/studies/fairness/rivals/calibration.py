"""`VectorScaling`: probabilities that agree with labels, with shifts that few labels hardly move."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from repsurgery.arrays import Matrix, Vector

__all__ = ["PENALTY", "VectorScaling"]

PENALTY = 1.0
"""λ, as in the regressions with C = 1: a class of about one row is moved half of the way to its own frequency."""
FLOOR = 1e-12
"""Smallest probability whose logarithm is taken."""


@dataclass(frozen=True, slots=True)
class VectorScaling:
    """p ↦ softmax(t log p + b) with t > 0: the scaling of least Σ_i log-loss_i + (λ/2) ‖b‖² on labelled rows.

    After Guo et al., "On calibration of modern neural networks" (2017), with one common factor t and a penalty, so that
    classes of few rows are shrunk towards the probabilities that they had.

    Guarantees
    ----------
    On the fitted rows the expected and the true number of rows of class y differ by λ b_y
    (test_expected_counts_are_true_counts_up_to_the_penalty).
    A rare class without rows keeps some probability (test_a_rare_class_without_rows_stays_possible).
    """

    factor: float
    shifts: Vector

    @classmethod
    def fit(cls, P: Matrix, codes: NDArray[np.intp]) -> Self:
        """Return the scaling of probabilities ``P`` (n, C) for true classes ``codes`` (n,)."""
        L = np.log(np.maximum(P, FLOOR))
        n, C = L.shape
        counts = np.bincount(codes, minlength=C)
        own = float(L[np.arange(n), codes].sum())

        def loss(theta: Vector) -> tuple[float, Vector]:
            t, b = np.exp(theta[0]), theta[1:]
            values = t * L + b
            top = values.max(axis=1, keepdims=True)
            Q = np.exp(values - top)
            mass = Q.sum(axis=1, keepdims=True)
            Q /= mass
            total = float((top + np.log(mass)).sum()) - t * own - counts @ b + PENALTY / 2 * (b @ b)
            slope = np.concatenate([[t * (float((Q * L).sum()) - own)], Q.sum(axis=0) - counts + PENALTY * b])
            return total / n, slope / n

        # the loss is a mean of order 1, so these stop at an error of about 1e-6 rows in a thousand
        found = minimize(loss, np.zeros(C + 1), jac=True, method="L-BFGS-B", options={"gtol": 1e-9, "ftol": 1e-15})
        return cls(float(np.exp(found.x[0])), found.x[1:])

    def __call__(self, P: Matrix) -> Matrix:
        """Return the calibrated probabilities (n, C)."""
        values = self.factor * np.log(np.maximum(P, FLOOR)) + self.shifts
        values -= values.max(axis=1, keepdims=True)
        Q: Matrix = np.exp(values)
        Q /= Q.sum(axis=1, keepdims=True)
        return Q
