"""The preconditioner: the Hessian of the log-loss, assuming probabilities independent of features."""

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from repsurgery.arrays import Matrix, Vector
from repsurgery.studies.fairness.classifiers.softmax import SoftmaxLoss, Work

__all__ = ["Curvature", "Spectrum"]

ROWS_PER_FEATURE = 16
"""Rows per feature for estimating the spectrum: an approximation suffices, and more rows would cost more time."""
SLICE = 256


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Eigenvalues (d,) and eigenvectors (d, d) of the covariance of evenly spaced rows."""

    values: Vector
    vectors: Matrix

    @classmethod
    def of(cls, loss: SoftmaxLoss) -> "Spectrum":
        """Return the spectrum of the centred rows of ``loss``, from at most about 16 d of them."""
        n, d = loss.X.shape
        starts = np.arange(0, n, SLICE)
        wanted = max(1, ROWS_PER_FEATURE * d // SLICE)
        S, weight = np.zeros((d, d)), 0.0
        for start in starts[:: max(1, len(starts) // wanted)]:
            rows = slice(start, start + SLICE)
            Z = loss.centred(rows)
            w = np.ones(len(Z)) if loss.w is None else loss.w[rows]
            if loss.w is not None:
                Z = Z * np.sqrt(w)[:, None].astype(Z.dtype)
            S += Z.T @ Z
            weight += float(w.sum())
        values, vectors = linalg.eigh(S / max(weight, 1.0), driver="evd", check_finite=False)
        return cls(np.maximum(values, 0.0), vectors)


class Curvature:
    """M = A ⊗ diag(S, 1) + λ (I, 0), with A = Σ w_i (diag p_i − p_i p_iᵀ) and S the covariance of the rows.

    The Hessian is Σ w_i (diag p_i − p_i p_iᵀ) ⊗ (x_i − μ, 1)(x_i − μ, 1)ᵀ + λ (I, 0); M replaces the mean of products
    by the product of means. Both factors are diagonalised, so solving with M costs two small products.
    """

    def __init__(self, loss: SoftmaxLoss, spectrum: Spectrum, p: Work) -> None:
        A = -(p if loss.w is None else p * loss.w.astype(p.dtype)) @ p.T
        A[np.diag_indices(loss.K)] -= A.sum(axis=0)  # rows of A sum to zero, as Σ_k p_k = 1
        a, self._U = np.linalg.eigh(A.astype(np.float64))
        self._V = spectrum.vectors
        scale = np.append(spectrum.values, 1.0)
        ridge = np.append(np.full(len(scale) - 1, loss.penalty), 0.0)
        M = np.maximum(a, 0.0)[:, None] * scale + ridge
        self._M = np.maximum(M, np.finfo(np.float64).eps * M.max())

    def solve(self, G: Matrix) -> Matrix:
        """Return M⁻¹ G (K, d + 1), columns summing to zero: adding one vector to every class changes no probability."""
        H = np.column_stack([G[:, :-1] @ self._V, G[:, -1]])
        H = self._U @ ((self._U.T @ H) / self._M)
        H = np.column_stack([H[:, :-1] @ self._V.T, H[:, -1]])
        H -= H.mean(axis=0)
        return H
