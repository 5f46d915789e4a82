"""Concepts that are numbers: checked as they are, or divided into classes by their quantiles."""

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Matrix, Vector, as_rows, check_integer
from repsurgery.errors import LabelError, LabelWarning, ParameterError

__all__ = ["CONCEPT_TYPES", "check_concept_type", "check_continuous", "quantile_bins"]

CONCEPT_TYPES = ("classes", "continuous")


def check_concept_type(value: Any) -> None:
    """Raise a `ParameterError` unless ``value`` is one of `CONCEPT_TYPES`."""
    if value not in CONCEPT_TYPES:
        raise ParameterError(f"concept_type is {value!r}; it must be one of {list(CONCEPT_TYPES)}.")


def check_continuous(z: Any, n: int, *, caller: str = "this call") -> Matrix:
    """Return a continuous concept of ``n`` rows as float64 (n, k); a vector (n,) is one column."""
    if z is None:
        raise LabelError(
            f"{caller} requires y to be passed, but the target y is None: give the concept of each row, as fit(X, z)."
        )
    z = as_rows(z)
    if np.ma.is_masked(z):
        raise LabelError(f"{caller} got a concept with masked entries; give every row a value or drop the row.")
    try:
        values = np.asarray(z)
        if values.dtype.kind not in "fiub":
            values = np.asarray(z, dtype=object)
            if any(isinstance(value, str | bytes) for value in values.ravel()):
                raise TypeError("it holds text")
        numbers = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise LabelError(
            f"{caller} got a concept that is not made of real numbers ({error}). Convert it to numbers, or use "
            "concept_type='classes' for labels."
        ) from error
    numbers = numbers[:, None] if numbers.ndim == 1 else numbers
    if numbers.ndim != 2 or len(numbers) != n or not numbers.shape[1]:
        raise LabelError(
            f"{caller} got a concept of shape {np.shape(z)} for {n} rows; it needs one number per row, shape ({n},), "
            f"or k numbers, shape ({n}, k)."
        )
    if not np.isfinite(numbers).all():
        i, j = np.argwhere(~np.isfinite(numbers))[0]
        raise LabelError(
            f"{caller} got a concept with NaN or infinity, first at row {i}, column {j}. Give every row a value or "
            "drop the row."
        )
    return numbers


def quantile_bins(z: Any, k: int = 4, *, like: Any = None) -> NDArray[np.str_]:
    """Return the class of each number: its quantile bin, named by its place and its bounds.

    Equal numbers are always in one bin. Where many are equal, some bins coincide, fewer than ``k`` remain, and a
    warning says how many. The names sort as the bins do.

    Parameters
    ----------
    z : (n,) numbers
    k : int
        The number of bins.
    like : (m,) numbers, or None
        The numbers whose quantiles are the bounds, such as those of the fit; None takes those of ``z``.

    Guarantees
    ----------
    Without equal numbers the sizes of any two bins differ by one at most (test_bins_without_ties_are_equally_large).
    Equal numbers share a bin, and bins are ordered as their numbers (test_equal_numbers_share_a_bin).

    Examples
    --------
    >>> import repsurgery as rs
    >>> rs.quantile_bins([1.5, 2.0, 3.5, 4.0], 2).tolist()
    ['1 of 2: up to 2', '1 of 2: up to 2', '2 of 2: above 2', '2 of 2: above 2']
    """
    wanted = check_integer("k", k, least=2)
    values = _column(z)
    reference = np.sort(values if like is None else _column(like))
    # the bounds are numbers that occur: the i-th bound is the smallest one that i/k of all numbers do not exceed
    places = np.ceil(np.arange(1, wanted) * len(reference) / wanted).astype(np.intp) - 1
    bounds = np.unique(reference[np.maximum(places, 0)])
    bounds = bounds[bounds < reference[-1]]
    if not len(bounds):
        raise LabelError(
            f"quantile_bins cannot divide these numbers: at least {(1 - 1 / wanted):.0%} of them are equal. Choose a "
            "larger k, or cut them into classes by hand."
        )
    if len(bounds) + 1 < wanted:
        warnings.warn(
            f"Many numbers are equal, so that {wanted} bins by quantiles become {len(bounds) + 1}.",
            LabelWarning,
            stacklevel=2,
        )
    return np.array(_names(bounds))[np.searchsorted(bounds, values, side="left")]


def _column(z: Any) -> Vector:
    size = np.shape(as_rows(z))[0] if np.ndim(as_rows(z)) else 0
    numbers = check_continuous(z, size, caller="quantile_bins")
    if numbers.shape[1] != 1 or not size:
        raise LabelError(
            f"quantile_bins got numbers of shape {np.shape(z)}; it takes one number per row. Bin each column alone."
        )
    return numbers[:, 0]


def _names(bounds: Vector) -> list[str]:
    """Return the names of the bins, with as many digits as it takes to tell the bounds apart."""
    digits = next(d for d in range(3, 18) if d == 17 or len({f"{b:.{d}g}" for b in bounds}) == len(bounds))
    shown = [f"{b:.{digits}g}" for b in bounds]
    ranges = [f"up to {shown[0]}", *(f"above {a} up to {b}" for a, b in pairwise(shown)), f"above {shown[-1]}"]
    width = len(str(len(ranges)))
    return [f"{i:0{width}} of {len(ranges)}: {words}" for i, words in enumerate(ranges, 1)]
