"""The five structures of an affine map, each final and frozen. `AffineMap` documents their methods."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import lapack
from scipy.sparse.linalg import LinearOperator

from repsurgery.affine.base import AffineMap, ArrayMap, finite_result
from repsurgery.arrays import Matrix, Vector
from repsurgery.errors import DataError, ParameterError, ShapeError, SingularMapError
from repsurgery.linalg.spectrum import largest_singular_value

__all__ = ["Dense", "Diagonal", "Identity", "LowRank", "Translation"]

_INTERPOLATION = finite_result("The interpolation", "Lower the strength, or rescale the maps.")
_INVERSE = finite_result("The inverse", "Interpolate to a strength below 1 first, or rescale the map.")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Identity(AffineMap):
    """x ↦ x on d features."""

    size: int
    kind = "identity"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ShapeError(f"Identity.size is {self.size}; a map acts on at least one feature. Give a positive size.")

    @property
    def dim(self) -> int:
        return self.size

    @property
    def weight(self) -> Matrix:
        return np.eye(self.size)

    @property
    def bias(self) -> Vector:
        return np.zeros(self.size)

    def linear(self, X: Matrix) -> Matrix:
        return X.copy()

    def inverse(self) -> "Identity":
        return self

    def interpolate(self, t: float) -> "Identity":
        return self

    def gain(self) -> float:
        return 1.0

    def singular_values(self) -> Vector:
        return np.ones(self.dim)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"size": np.array(self.size)}

    def astype(self, dtype: Any) -> "Identity":
        return self


@final
@dataclass(frozen=True, slots=True, eq=False)
class Translation(ArrayMap):
    """x ↦ x + shift, with ``shift`` (d,): the steering vector."""

    shift: Vector
    kind = "translation"

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"shift": (self.dim,)}

    @property
    def dim(self) -> int:
        return int(self.shift.size)

    @property
    def weight(self) -> Matrix:
        return np.eye(self.dim)

    @property
    def bias(self) -> Vector:
        return self.shift

    def linear(self, X: Matrix) -> Matrix:
        return X.copy()

    def inverse(self) -> "Translation":
        return Translation(-self.shift)

    @_INTERPOLATION
    def interpolate(self, t: float) -> "Translation":
        return Translation(t * self.shift)

    def gain(self) -> float:
        return 1.0

    def singular_values(self) -> Vector:
        return np.ones(self.dim)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Diagonal(ArrayMap):
    """x ↦ scale · x + offset, coordinate by coordinate, with ``scale`` and ``offset`` (d,)."""

    scale: Vector
    offset: Vector
    kind = "diagonal"

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"scale": (self.dim,), "offset": (self.dim,)}

    @property
    def dim(self) -> int:
        return int(self.offset.size)

    @property
    def weight(self) -> Matrix:
        return np.diag(self.scale)

    @property
    def bias(self) -> Vector:
        return self.offset

    def linear(self, X: Matrix) -> Matrix:
        return X * self.scale

    @_INVERSE
    def inverse(self) -> "Diagonal":
        if not self.scale.all():
            raise SingularMapError(
                f"{int((self.scale == 0).sum())} coordinates are mapped to a constant, so this map has no inverse. "
                "Interpolate to a strength below 1 first."
            )
        return Diagonal(1 / self.scale, -self.offset / self.scale)

    @_INTERPOLATION
    def interpolate(self, t: float) -> "Diagonal":
        return Diagonal((1 - t) + t * self.scale, t * self.offset)

    def gain(self) -> float:
        return float(np.abs(self.scale).max(initial=0.0))

    def singular_values(self) -> Vector:
        return np.sort(np.abs(self.scale))[::-1]


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

    @_INVERSE
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

    @_INTERPOLATION
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

    @_INVERSE
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

    @_INTERPOLATION
    def interpolate(self, t: float) -> "Dense":
        W = t * self.matrix
        W[np.diag_indices_from(W)] += 1 - t
        return Dense(W, t * self.offset)

    def gain(self) -> float:
        return largest_singular_value(self.matrix)


_KINDS: dict[str, type[AffineMap]] = {c.kind: c for c in (Identity, Translation, Diagonal, LowRank, Dense)}


def from_arrays(kind: str, arrays: dict[str, NDArray[Any]]) -> AffineMap:
    """Rebuild a map from its ``kind`` and `AffineMap.arrays`."""
    if kind not in _KINDS:
        raise ParameterError(f"There is no map of kind {kind!r}; the kinds are {sorted(_KINDS)}.")
    if kind == "identity":
        size = arrays.pop("size")
        if arrays or size.shape != () or size.dtype.kind not in "iu":
            raise ShapeError(f"An identity has one whole number 'size', not {size.dtype} of shape {size.shape}.")
        return Identity(int(size))
    return _KINDS[kind](**arrays)
