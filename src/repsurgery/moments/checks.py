"""Checks of moments: consistent arrays and values, a scatter that rows can have, a scale that float64 can square."""

from numbers import Real
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from repsurgery.arrays import row_blocks
from repsurgery.errors import DataError, NotNumericError, ParameterError, ShapeError

if TYPE_CHECKING:
    from repsurgery.moments.moments import Moments

__all__ = [
    "SCALES",
    "Precision",
    "coarsest",
    "require_comparable_weights",
    "require_consistent",
    "require_same_width",
    "require_scale",
    "require_scatter",
]

Precision = Literal["float64", "float32-products"]
SCALES = (1e-35, 1e35)
"""Standard deviations between which eighth powers keep their digits in float64."""
LEAST_SHARE = 1e-20
"""Squares of the gap between two means keep their digits down to this share of the larger weight."""
NEGATIVE = float(np.sqrt(np.finfo(np.float64).eps))
"""A negative variance up to this share of the largest variance is the rounding that removing rows leaves."""
ASYMMETRY = 1e-4
"""Rounding of products in float32 stays far below this, relative to the largest variance."""


def require_consistent(m: "Moments") -> None:
    """Raise where no rows can have these moments; O(d) work on dense ones, because every merge calls this."""
    parts = {"mean": m.mean, "residue": m.residue, "dense": m.dense, "factor": m.factor}
    arrays = {name: array for name, array in parts.items() if array is not None}
    if any(not isinstance(array, np.ndarray) or array.dtype != np.float64 for array in arrays.values()):
        raise NotNumericError(
            "Moments hold float64 arrays. Compute them from rows by Moments.of, or convert the arrays."
        )
    shapes = {name: array.shape for name, array in arrays.items()}
    d = m.mean.size
    spread = (d, d) if "dense" in shapes else (len(m.factor) if m.factor is not None and m.factor.ndim else 0, d)
    if len(shapes) != 3 or any(shapes[name] != ((d,) if name in ("mean", "residue") else spread) for name in shapes):
        raise ShapeError(f"Moments got {shapes}; they need mean (d,) and either dense (d, d) or factor (m, d).")
    if type(m.count) is not int or m.count < 0 or not isinstance(m.weight, Real) or isinstance(m.weight, bool):
        raise DataError(
            f"Moments got count={m.count!r}, weight={m.weight!r}; they need a whole number of rows and a number."
        )
    if not np.isfinite(m.weight) or (m.weight > 0) != (m.count > 0):
        raise DataError(f"Moments got {m.count} rows of weight {m.weight}; rows need a finite weight above 0.")
    diagonal = np.einsum("ij,ij->j", m.factor, m.factor) if m.factor is not None else np.diagonal(arrays["dense"])
    if not (np.isfinite(m.mean).all() and np.isfinite(diagonal).all()):
        raise DataError("Moments got a mean or scatter with NaN or infinity. Divide X by a constant and fit again.")
    if diagonal.min(initial=0.0) < -NEGATIVE * diagonal.max(initial=0.0):
        raise DataError(
            f"Moments got a scatter with {diagonal.min()} on its diagonal; a variance is never negative. "
            "Compute the moments from rows by Moments.of."
        )
    if m.dtype not in ("float32", "float64") or m.precision not in get_args(Precision):
        raise ParameterError(
            f"Moments got dtype={m.dtype!r}, precision={m.precision!r}; "
            f"dtype must be float32 or float64, precision one of {list(get_args(Precision))}."
        )
    if m.groups is not None:
        m.groups.require_possible(float(m.weight))


def require_comparable_weights(smallest: float, largest: float) -> None:
    """Raise `DataError` where the smaller of two positive weights is nothing beside the larger."""
    if smallest < LEAST_SHARE * largest:
        raise DataError(
            f"A weight of {smallest:.3g} stands beside one of {largest:.3g}. Below {LEAST_SHARE:g} of the largest, a "
            "weight changes no digit of the mean, and the spread of its rows is lost. Set such weights to 0, or bring "
            "all weights nearer to each other."
        )


def require_scale(size: float, spread: float) -> None:
    """Raise `DataError` unless a largest mean of ``size`` and a largest standard deviation of ``spread`` are usable.

    Certificates square covariances, and their tests square those again. Outside `SCALES` such products vanish or
    overflow, and any gap would be computed as 0.
    """
    smallest, largest = SCALES
    for what, value, least in (("a spread", spread, smallest), ("a mean", size, smallest if spread == 0 else 0.0)):
        if value and not least <= value <= largest:
            raise DataError(
                f"X has {what} of {value:.3g}; fitting takes its eighth power, which float64 holds only for values "
                f"between {smallest:g} and {largest:g}. Multiply X by a constant that brings it near 1 and fit again."
            )


def require_scatter(m: "Moments") -> None:
    """Raise `DataError` for a matrix that is not a scatter: not symmetric, or with a correlation beyond 1."""
    if m.dense is None:
        return
    scale = np.sqrt(np.maximum(np.diagonal(m.dense), 0.0))
    slack = ASYMMETRY * float(np.square(scale).max(initial=0.0))
    for block in row_blocks(*m.dense.shape):
        rows = m.dense[block]
        bound = np.outer(scale[block], scale) + slack
        if (np.abs(rows) > bound).any() or (np.abs(rows - m.dense[:, block].T) > slack).any():
            raise DataError("A scatter is not symmetric, or some covariance exceeds its variances.")


def require_same_width(a: "Moments", b: "Moments") -> None:
    """Raise `ShapeError` where two moments have different numbers of features."""
    if a.dim != b.dim:
        raise ShapeError(f"Moments of {a.dim} and of {b.dim} features cannot be combined; use one site for both.")


def coarsest(a: "Moments", b: "Moments") -> tuple[str, Precision]:
    """Return the dtype and the precision of moments that combine two others."""
    dtype = "float64" if a.dtype == b.dtype == "float64" else "float32"
    both_exact = a.precision == b.precision == "float64"
    return dtype, "float64" if both_exact else "float32-products"
