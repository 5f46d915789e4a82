"""Maps that mix coordinates by a matrix, each final and frozen. `AffineMap` documents their methods."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import linalg
from scipy.linalg import lapack
from scipy.sparse.linalg import LinearOperator

from repsurgery.affine.base import INTERPOLATION, INVERSE, ArrayMap
from repsurgery.arrays import Matrix, Vector
from repsurgery.errors import DataError, ShapeError, SingularMapError
from repsurgery.linalg.spectrum import largest_singular_value

__all__ = ["Dense", "LowRank"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class LowRank(ArrayMap):
    """x ↦ scale · x + left (right x) + offset, with ``left`` (d, r), ``right`` (r, d), ``scale`` a number.

    Costs O(r d) per row instead of O(d²); LEACE has r = k − 1.
    """

    left: Matrix
    right: Matrix
    offset: Vector
    scale: Any = 1.0
    kind = "low-rank"

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        if self.left.ndim != 2:
            raise ShapeError(f"LowRank.left has shape {self.left.shape}; it needs (d, r).")
        return {"left": (self.dim, self.rank), "right": (self.rank, self.dim), "offset": (self.dim,), "scale": ()}

    @property
    def dim(self) -> int:
        return int(self.offset.size)

    @property
    def rank(self) -> int:
        """The number r of directions that the map does not merely scale."""
        return int(self.left.shape[1])

    @property
    def weight(self) -> Matrix:
        W = self.left @ self.right
        W[np.diag_indices_from(W)] += self.scale
        return W

    @property
    def bias(self) -> Vector:
        return self.offset

    def linear(self, X: Matrix) -> Matrix:
        Y = (X @ self.right.T) @ self.left.T
        Y += X if self.scale == 1 else self.scale * X
        return Y

    def pullback(self, V: Matrix) -> Matrix:
        back: Matrix = self.right.T @ (self.left.T @ V) + self.scale * V
        return back

    @INVERSE
    def inverse(self) -> "LowRank":
        # Woodbury: (sI + LR)⁻¹ = I/s − L (sI + RL)⁻¹ R / s
        s = float(self.scale)
        core = s * np.eye(self.rank) + self.right @ self.left
        if not np.isfinite(core).all():
            raise DataError("LowRank.right @ LowRank.left overflows.")
        if s == 0 or (self.rank and np.linalg.cond(core) > 1 / (self.dim * np.finfo(float).eps)):
            raise SingularMapError(
                "This low-rank map removes directions, so it has no inverse. Interpolate to a strength below 1 first."
            )
        left = -self.left @ np.linalg.inv(core) / s
        inverse = LowRank(left, self.right, np.zeros(self.dim), 1 / s)
        return LowRank(left, self.right, -inverse.linear(self.offset[None])[0], 1 / s)

    @INTERPOLATION
    def interpolate(self, t: float) -> "LowRank":
        return LowRank(t * self.left, self.right, t * self.offset, (1 - t) + t * self.scale)

    def singular_values(self) -> Vector:
        # outside the span of left and rightᵀ the map scales by |scale|
        s, Q = abs(float(self.scale)), np.linalg.qr(np.hstack([self.left, self.right.T]))[0]
        if Q.shape[1] >= self.dim:
            return super(LowRank, self).singular_values()
        inner = float(self.scale) * np.eye(Q.shape[1]) + (Q.T @ self.left) @ (self.right @ Q)
        values = np.concatenate([np.linalg.svd(inner, compute_uv=False), np.full(self.dim - Q.shape[1], s)])
        return np.sort(values)[::-1]

    def gain(self) -> float:
        if self.dim <= 64:
            return largest_singular_value(self.weight)
        s = float(self.scale)
        operator = LinearOperator(
            (self.dim, self.dim),
            matvec=lambda v: s * v.ravel() + self.left @ (self.right @ v.ravel()),
            rmatvec=lambda v: s * v.ravel() + self.right.T @ (self.left.T @ v.ravel()),
            dtype=np.float64,
        )
        return largest_singular_value(operator)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Dense(ArrayMap):
    """x ↦ matrix x + offset, with ``matrix`` (d, d) and ``offset`` (d,)."""

    matrix: Matrix
    offset: Vector
    kind = "dense"

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"matrix": (self.dim, self.dim), "offset": (self.dim,)}

    @property
    def dim(self) -> int:
        return int(self.offset.size)

    @property
    def weight(self) -> Matrix:
        return self.matrix

    @property
    def bias(self) -> Vector:
        return self.offset

    def linear(self, X: Matrix) -> Matrix:
        return X @ self.matrix.T

    @INVERSE
    def inverse(self) -> "Dense":
        lu, pivots, info = lapack.dgetrf(self.matrix)
        rcond = 0.0 if info else lapack.dgecon(lu, np.abs(self.matrix).sum(axis=0).max(initial=0.0))[0]
        if rcond < self.dim * np.finfo(float).eps:
            raise SingularMapError(
                f"This map flattens some direction (reciprocal condition {rcond:.1e}), so it has no inverse. "
                "Interpolate to a strength below 1 first."
            )
        inverse = linalg.lu_solve((lu, pivots), np.eye(self.dim), check_finite=False)
        return Dense(inverse, -inverse @ self.offset)

    @INTERPOLATION
    def interpolate(self, t: float) -> "Dense":
        W = t * self.matrix
        W[np.diag_indices_from(W)] += 1 - t
        return Dense(W, t * self.offset)

    def gain(self) -> float:
        return largest_singular_value(self.matrix)
