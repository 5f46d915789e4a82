"""The multinomial log-loss over many rows, with cached logits and rows centred block by block."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Matrix, Rows, Vector, require_finite, row_blocks

__all__ = ["Logits", "SoftmaxLoss"]

Work = NDArray[Any]
"""An array in the working precision, float32 or float64."""

BLOCK_ROWS = 1024


@dataclass(slots=True)
class Logits:
    """Along θ + tD: ``here`` (K, n) at t = 0, ``slope`` (K, n) per unit of t, ``p`` (K, n) at the last t evaluated."""

    here: Work
    slope: Work
    p: Work

    def advance(self, t: float) -> None:
        """Make θ + tD the new θ."""
        self.slope *= self.slope.dtype.type(t)
        self.here += self.slope


class SoftmaxLoss:
    """L(θ) = Σ w_i (log Σ_k exp f_ik − f_{i, y_i}) + λ/2 ‖W‖², f_i = W (x_i − μ) + b, θ = (W, b) of shape (K, d + 1).

    Parameters
    ----------
    X : (n, d) rows, of any real dtype
    codes : (n,) class of each row, in 0 … K − 1
    K : int
    w : (n,) weights, or None
    penalty : float
        λ; the intercepts b are not penalised.
    dtype : float32 or float64
        Of products and logits. Sums over rows are float64 either way.

    Notes
    -----
    Along a direction the logits are affine, so a line search needs no product with X: an iteration computes one
    product for the direction and one for the gradient. Besides X it stores 3 n K numbers and one block of rows.
    """

    def __init__(
        self, X: Rows, codes: NDArray[np.intp], K: int, w: Vector | None, *, penalty: float, dtype: Any
    ) -> None:
        self.X, self.codes, self.K, self.w, self.penalty = X, codes, K, w, penalty
        self.dtype = np.dtype(dtype)
        self.weight = float(len(X)) if w is None else float(w.sum())
        self.pivot = self._mean()

    def logits(self) -> Logits:
        """Return the logits at θ = 0, which are 0."""
        shape = (self.K, len(self.X))
        return Logits(*(np.zeros(shape, self.dtype) for _ in range(3)))

    def along(self, D: Matrix, logits: Logits) -> None:
        """Write the logits of direction ``D`` (K, d + 1) into ``logits.slope``: one product with X."""
        weights, intercepts = D[:, :-1].astype(self.dtype), D[:, -1:].astype(self.dtype)
        for rows, Z in self.blocks():
            np.matmul(weights, Z.T, out=logits.slope[:, rows])
            logits.slope[:, rows] += intercepts

    def evaluate(self, t: float, logits: Logits) -> tuple[float, float]:
        """Return the log-loss at θ + tD and its derivative in t; the probabilities are left in ``logits.p``."""
        value = slope = 0.0
        step = self.dtype.type(t)
        for rows in row_blocks(len(self.X), self.K, itemsize=64):
            q, p = logits.slope[:, rows], logits.p[:, rows]
            own = (self.codes[rows], np.arange(rows.stop - rows.start))
            np.multiply(q, step, out=p)
            p += logits.here[:, rows]
            p -= p.max(axis=0)
            loss = -p[own]
            np.exp(p, out=p)
            total = p.sum(axis=0)
            p /= total
            loss += np.log(total)
            change = np.einsum("kn,kn->n", p, q) - q[own]
            value += _weighted_sum(loss, self.w, rows)
            slope += _weighted_sum(change, self.w, rows)
        return value, slope

    def gradient(self, theta: Matrix, p: Work) -> Matrix:
        """Return ∇L (K, d + 1) where the probabilities are ``p`` (K, n): one product with X."""
        G = np.zeros((self.K, theta.shape[1]))
        for rows, Z in self.blocks():
            # subtracted before the product: near the optimum the residuals are small, and so is their rounding error
            R = p[:, rows].copy()
            R[self.codes[rows], np.arange(len(Z))] -= 1
            if self.w is not None:
                R *= self.w[rows].astype(self.dtype)
            G[:, :-1] += R @ Z
            G[:, -1] += R.sum(axis=1, dtype=np.float64)
        G[:, :-1] += self.penalty * theta[:, :-1]
        return G

    def penalised(self, value: float, slope: float, theta: Matrix, D: Matrix, t: float) -> tuple[float, float]:
        """Return L(θ + tD) and its derivative in t, from the log-loss and its derivative there."""
        W, V = theta[:, :-1] + t * D[:, :-1], D[:, :-1]
        return value + 0.5 * self.penalty * float(np.vdot(W, W)), slope + self.penalty * float(np.vdot(W, V))

    def start(self) -> Matrix:
        """Return θ with W = 0 and b the logarithms of the class shares: the optimum without X."""
        theta = np.zeros((self.K, self.X.shape[1] + 1))
        theta[:, -1] = np.log(np.bincount(self.codes, self.w, minlength=self.K) / self.weight)
        theta -= theta.mean(axis=0)
        return theta

    def centred(self, rows: slice) -> Work:
        """Return x − μ for ``rows`` in the working precision."""
        Z = np.empty((len(self.X[rows]), self.X.shape[1]), self.dtype)
        return np.subtract(self.X[rows], self.pivot, out=Z, casting="same_kind")

    def blocks(self) -> Iterator[tuple[slice, Work]]:
        """Yield (rows, centred rows in the working precision); each block overwrites the buffer of the last."""
        n, d = self.X.shape
        buffer = np.empty((min(BLOCK_ROWS, n), d), self.dtype)
        for start in range(0, n, BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, n))
            Z = buffer[: rows.stop - rows.start]
            np.subtract(self.X[rows], self.pivot, out=Z, casting="same_kind")
            yield rows, Z

    def _mean(self) -> Work:
        """Return the mean (d,) in a dtype in which subtracting it from X loses nothing."""
        kind = np.result_type(self.X.dtype, self.dtype)
        total = np.zeros(self.X.shape[1])
        for rows in row_blocks(*self.X.shape):
            block = self.X[rows]
            total += block.sum(axis=0, dtype=np.float64) if self.w is None else self.w[rows] @ block
        mean = (total / self.weight).astype(kind)
        if not np.isfinite(mean).all():
            require_finite(self.X, caller="SoftmaxRegression")
        return mean


def _weighted_sum(values: Work, w: Vector | None, rows: slice) -> float:
    return float(values.sum(dtype=np.float64) if w is None else values @ w[rows])
