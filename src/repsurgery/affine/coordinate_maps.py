"""Maps that act on each coordinate alone, each final and frozen. `AffineMap` documents their methods."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from repsurgery.affine.base import INTERPOLATION, INVERSE, AffineMap, ArrayMap
from repsurgery.arrays import Matrix, Vector
from repsurgery.errors import ShapeError, SingularMapError

__all__ = ["Diagonal", "Identity", "Translation"]


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

    def pullback(self, V: Matrix) -> Matrix:
        return V

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

    def pullback(self, V: Matrix) -> Matrix:
        return V

    def inverse(self) -> "Translation":
        return Translation(-self.shift)

    @INTERPOLATION
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

    def pullback(self, V: Matrix) -> Matrix:
        return self.scale[:, None] * V

    @INVERSE
    def inverse(self) -> "Diagonal":
        if not self.scale.all():
            raise SingularMapError(
                f"{int((self.scale == 0).sum())} coordinates are mapped to a constant, so this map has no inverse. "
                "Interpolate to a strength below 1 first."
            )
        return Diagonal(1 / self.scale, -self.offset / self.scale)

    @INTERPOLATION
    def interpolate(self, t: float) -> "Diagonal":
        return Diagonal((1 - t) + t * self.scale, t * self.offset)

    def gain(self) -> float:
        return float(np.abs(self.scale).max(initial=0.0))

    def singular_values(self) -> Vector:
        return np.sort(np.abs(self.scale))[::-1]
