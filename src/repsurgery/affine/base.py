"""`AffineMap`: a frozen map x ↦ Wx + b, applied to rows as ``X @ W.T + b``."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from repsurgery.affine.shown import map_card
from repsurgery.arrays import (
    Matrix,
    Rows,
    Vector,
    as_rows,
    check_rows,
    freeze,
    output_dtype,
    require_finite,
    row_blocks,
)
from repsurgery.cards import Card, Shown
from repsurgery.errors import DataError, NonFiniteError, ShapeError
from repsurgery.origin import UNKNOWN, Origin

__all__ = ["INTERPOLATION", "INVERSE", "AffineMap", "ArrayMap", "finite_result"]

Array = TypeVar("Array", bound=NDArray[Any])


@contextmanager
def finite_result(what: str, remedy: str) -> Iterator[None]:
    """Raise a `NonFiniteError` if the block, which computes a map from finite maps, overflows float64.

    The message names what is computed (``what``, such as "The composition") and the ``remedy``. NumPy's own warnings
    are suppressed.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            yield
    except (DataError, np.linalg.LinAlgError) as error:  # LAPACK raises for infinite input
        raise NonFiniteError(f"{what} overflows: its numbers are too large. {remedy}") from error


INTERPOLATION = finite_result("The interpolation", "Lower the strength, or rescale the maps.")
INVERSE = finite_result("The inverse", "Interpolate to a strength below 1 first, or rescale the map.")
"""Decorators of `interpolate` and of `inverse`."""


class AffineMap(Shown, ABC):
    """Abstract base of the maps of `repsurgery.affine`; all of those are final and frozen."""

    __slots__ = ()
    kind: str

    @property
    @abstractmethod
    def dim(self) -> int:
        """The number of features d."""

    @property
    @abstractmethod
    def weight(self) -> Matrix:
        """W as a dense (d, d) array."""

    @property
    @abstractmethod
    def bias(self) -> Vector:
        """The constant b, shape (d,)."""

    @property
    def origin(self) -> Origin:
        """Always unknown for a bare map; a `SteeringFunction` records the model and site of its maps."""
        return UNKNOWN

    @abstractmethod
    def linear(self, X: Matrix) -> Matrix:
        """Return ``X @ W.T`` for float64 rows (n, d), using the structure of W."""

    def pullback(self, V: Matrix) -> Matrix:
        """Return Wᵀ V for columns V (d, k): vᵀ(W h) is (Wᵀv)ᵀ h."""
        return self.weight.T @ V

    @abstractmethod
    def inverse(self) -> "AffineMap":
        """Return the inverse map; raise `SingularMapError`, or `NonFiniteError` if it overflows float64."""

    @abstractmethod
    def interpolate(self, t: float) -> "AffineMap":
        """Return x ↦ (1 − t) x + t (Wx + b), in the same structure."""

    @abstractmethod
    def gain(self) -> float:
        """Return ‖W‖₂, the largest factor by which any direction is stretched."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that define this map, by field name."""

    def __call__(self, X: Any) -> Rows:
        """Map rows (n, d), or one vector (d,), in float64 arithmetic; float32 and float64 input keeps its dtype."""
        host = as_rows(X)
        if np.ndim(host) == 1:
            rows: Rows = self(np.asarray(host)[None])[0]
            return rows
        rows = check_rows(host, dim=self.dim, caller=f"{type(self).__name__} map")
        require_finite(rows, caller=f"{type(self).__name__} map")
        return self.apply(rows)

    def apply(self, X: Rows) -> Rows:
        """Map checked rows block by block into a new array; raise `NonFiniteError` if a value overflows."""
        out = np.empty(X.shape, output_dtype(X))
        for block in row_blocks(*X.shape):
            with np.errstate(over="ignore", invalid="ignore"):
                Y = self.linear(X[block].astype(np.float64))
                Y += self.bias
                out[block] = Y
            if not np.isfinite(out[block]).all():
                raise NonFiniteError(
                    f"{type(self).__name__} map produced NaN or a value beyond {out.dtype} (the rows reach "
                    f"{np.abs(X[block]).max():.3g}). Lower the strength, fit with more rows or shrinkage, or pass "
                    "wider numbers."
                )
        return out

    def astype(self, dtype: DTypeLike) -> Self:
        """Return this map with its numbers rounded to ``dtype`` (and stored as float64).

        Raises
        ------
        NonFiniteError
            A number is beyond the range of ``dtype``.
        """
        with finite_result(f"The rounding to {np.dtype(dtype)}", "Choose a wider dtype, or rescale the map."):
            return type(self)(**{name: a.astype(dtype).astype(np.float64) for name, a in self.arrays().items()})

    def _card(self) -> Card:
        return map_card(self)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the singular values of W, the factors by which directions are stretched, and return the axes.

        Drawing needs ``pip install 'repsurgery[report]'``. ``ax`` are axes of matplotlib; None makes a new figure.
        """
        from repsurgery.pictures.spectrum import draw_spectra

        title = self._card().title
        return draw_spectra(
            {"singular values of W": self.singular_values()}, title=title, ylabel="factor", unchanged=1.0, ax=ax
        )

    def singular_values(self) -> Vector:
        """Return the singular values of W (d,), from the largest to the smallest; O(d³) work for a dense map."""
        return np.asarray(np.linalg.svd(self.weight, compute_uv=False), dtype=np.float64)

    def __matmul__(self, other: "AffineMap") -> "AffineMap":
        """``f @ g`` applies g first, then f."""
        from repsurgery.affine.algebra import compose

        return compose(self, other)


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMap(AffineMap):
    """A map whose fields are read-only float64 arrays of the shapes in `_shapes`."""

    def __post_init__(self) -> None:
        for field in fields(self):
            # a copy, so that later changes of the caller's array do not change the map; in one order, because the
            # order decides the last bit of a product, and a file keeps none
            array = np.array(getattr(self, field.name), dtype=np.float64, order="C")
            object.__setattr__(self, field.name, freeze(array))
        for name, shape in self._shapes().items():
            array = getattr(self, name)
            if array.shape != shape:
                raise ShapeError(f"{type(self).__name__}.{name} has shape {array.shape}; it needs {shape}.")
            if not np.isfinite(array).all():
                raise DataError(f"{type(self).__name__}.{name} holds NaN or infinity. Give finite numbers.")

    @abstractmethod
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape that each field must have."""

    def arrays(self) -> dict[str, NDArray[Any]]:  # noqa: D102 - documented on AffineMap
        return {field.name: getattr(self, field.name) for field in fields(self)}
