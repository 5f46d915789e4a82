"""The five structures an affine map can have, each final and frozen."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import lapack
from scipy.sparse.linalg import LinearOperator

from repsurgery.affine.base import AffineMap, finite_result
from repsurgery.arrays import Matrix, Vector, freeze
from repsurgery.errors import DataError, ParameterError, ShapeError, SingularMapError
from repsurgery.linalg.spectrum import largest_singular_value

__all__ = ["Dense", "Diagonal", "Identity", "LowRank", "Translation"]

_INTERPOLATION = finite_result("The interpolation", "Lower the strength, or rescale the maps.")
_INVERSE = finite_result("The inverse", "Interpolate to a strength below 1 first, or rescale the map.")


def _own(value: Any) -> NDArray[Any]:
    return freeze(np.array(value, dtype=np.float64))  # a copy: what the caller does to his array is his affair


@final
@dataclass(frozen=True, slots=True, eq=False)
class Identity(AffineMap):
    """x ↦ x on d features."""

    size: int
    kind = "identity"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ShapeError(f"Identity.size is {self.size}; a map acts on at least one feature.")

    @property
    def dim(self) -> int:  # noqa: D102 - documented on AffineMap, as below
        return self.size

    @property
    def weight(self) -> Matrix:  # noqa: D102
        return np.eye(self.size)

    @property
    def bias(self) -> Vector:  # noqa: D102
        return np.zeros(self.size)

    def linear(self, X: Matrix) -> Matrix:  # noqa: D102
        return X.copy()

    def inverse(self) -> "Identity":  # noqa: D102
        return self

    def interpolate(self, t: float) -> "Identity":  # noqa: D102
        return self

    def gain(self) -> float:  # noqa: D102
        return 1.0

    def arrays(self) -> dict[str, NDArray[Any]]:  # noqa: D102
        return {"size": np.array(self.size)}

    def astype(self, dtype: Any) -> "Identity":  # noqa: D102
        return self


@final
@dataclass(frozen=True, slots=True, eq=False)
class Translation(AffineMap):
    """x ↦ x + shift, with ``shift`` (d,): the steering vector."""

    shift: Vector
    kind = "translation"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shift", _own(self.shift))
        self._check(shift=(self.dim,))

    @property
    def dim(self) -> int:  # noqa: D102
        return int(self.shift.size)

    @property
    def weight(self) -> Matrix:  # noqa: D102
        return np.eye(self.dim)

    @property
    def bias(self) -> Vector:  # noqa: D102
        return self.shift

    def linear(self, X: Matrix) -> Matrix:  # noqa: D102
        return X.copy()

    def inverse(self) -> "Translation":  # noqa: D102
        return Translation(-self.shift)

    @_INTERPOLATION
    def interpolate(self, t: float) -> "Translation":  # noqa: D102
        return Translation(t * self.shift)

    def gain(self) -> float:  # noqa: D102
        return 1.0

    def arrays(self) -> dict[str, NDArray[Any]]:  # noqa: D102
        return {"shift": self.shift}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Diagonal(AffineMap):
    """x ↦ scale · x + offset, coordinate by coordinate, with ``scale`` and ``offset`` (d,)."""

    scale: Vector
    offset: Vector
    kind = "diagonal"

    def __post_init__(self) -> None:
        for name in ("scale", "offset"):
            object.__setattr__(self, name, _own(getattr(self, name)))
        self._check(scale=(self.dim,), offset=(self.dim,))

    @property
    def dim(self) -> int:  # noqa: D102
        return int(self.offset.size)

    @property
    def weight(self) -> Matrix:  # noqa: D102
        return np.diag(self.scale)

    @property
    def bias(self) -> Vector:  # noqa: D102
        return self.offset

    def linear(self, X: Matrix) -> Matrix:  # noqa: D102
        return X * self.scale

    @_INVERSE
    def inverse(self) -> "Diagonal":  # noqa: D102
        if not self.scale.all():
            raise SingularMapError(
                f"{int((self.scale == 0).sum())} coordinates are mapped to a constant, so this map has no inverse. "
                "Interpolate to a strength below 1 first."
            )
        return Diagonal(1 / self.scale, -self.offset / self.scale)

    @_INTERPOLATION
    def interpolate(self, t: float) -> "Diagonal":  # noqa: D102
        return Diagonal((1 - t) + t * self.scale, t * self.offset)

    def gain(self) -> float:  # noqa: D102
        return float(np.abs(self.scale).max(initial=0.0))

    def arrays(self) -> dict[str, NDArray[Any]]:  # noqa: D102
        return {"scale": self.scale, "offset": self.offset}


@final
@dataclass(frozen=True, slots=True, eq=False)
class LowRank(AffineMap):
    """x ↦ scale · x + left (right x) + offset, with ``left`` (d, r), ``right`` (r, d), ``scale`` a number.

    Costs O(r d) per row instead of O(d²); LEACE has r = k − 1.
    """

    left: Matrix
    right: Matrix
    offset: Vector
    scale: Any = 1.0
    kind = "low-rank"

    def __post_init__(self) -> None:
        for name in ("left", "right", "offset", "scale"):
            object.__setattr__(self, name, _own(getattr(self, name)))
        if self.left.ndim != 2:
            raise ShapeError(f"LowRank.left has shape {self.left.shape}; it needs (d, r).")
        r = self.left.shape[1]
        self._check(left=(self.dim, r), right=(r, self.dim), offset=(self.dim,), scale=())

    @property
    def dim(self) -> int:  # noqa: D102
        return int(self.offset.size)

    @property
    def rank(self) -> int:
        """How many directions the map treats otherwise than by ``scale``."""
        return int(self.left.shape[1])

    @property
    def weight(self) -> Matrix:  # noqa: D102
        W = self.left @ self.right
        W[np.diag_indices_from(W)] += self.scale
        return W

    @property
    def bias(self) -> Vector:  # noqa: D102
        return self.offset

    def linear(self, X: Matrix) -> Matrix:  # noqa: D102
        Y = (X @ self.right.T) @ self.left.T
        Y += X if self.scale == 1 else self.scale * X
        return Y

    @_INVERSE
    def inverse(self) -> "LowRank":  # noqa: D102
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
    def interpolate(self, t: float) -> "LowRank":  # noqa: D102
        return LowRank(t * self.left, self.right, t * self.offset, (1 - t) + t * self.scale)

    def gain(self) -> float:  # noqa: D102
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

    def arrays(self) -> dict[str, NDArray[Any]]:  # noqa: D102
        return {
            "left": self.left,
            "right": self.right,
            "offset": self.offset,
            "scale": np.asarray(self.scale),
        }


@final
@dataclass(frozen=True, slots=True, eq=False)
class Dense(AffineMap):
    """x ↦ matrix x + offset, with ``matrix`` (d, d) and ``offset`` (d,)."""

    matrix: Matrix
    offset: Vector
    kind = "dense"

    def __post_init__(self) -> None:
        for name in ("matrix", "offset"):
            object.__setattr__(self, name, _own(getattr(self, name)))
        self._check(matrix=(self.dim, self.dim), offset=(self.dim,))

    @property
    def dim(self) -> int:  # noqa: D102
        return int(self.offset.size)

    @property
    def weight(self) -> Matrix:  # noqa: D102
        return self.matrix

    @property
    def bias(self) -> Vector:  # noqa: D102
        return self.offset

    def linear(self, X: Matrix) -> Matrix:  # noqa: D102
        return X @ self.matrix.T

    @_INVERSE
    def inverse(self) -> "Dense":  # noqa: D102
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
    def interpolate(self, t: float) -> "Dense":  # noqa: D102
        W = t * self.matrix
        W[np.diag_indices_from(W)] += 1 - t
        return Dense(W, t * self.offset)

    def gain(self) -> float:  # noqa: D102
        return largest_singular_value(self.matrix)

    def arrays(self) -> dict[str, NDArray[Any]]:  # noqa: D102
        return {"matrix": self.matrix, "offset": self.offset}


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
