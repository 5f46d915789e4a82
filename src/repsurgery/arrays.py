"""Validation of the arrays, labels and weights that callers pass, and the names of their types."""

import math
from collections.abc import Iterator
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import DataError, LabelError, NotNumericError, ParameterError, ShapeError

__all__ = [
    "BLOCK_BYTES",
    "Label",
    "Labels",
    "Mask",
    "Matrix",
    "Rows",
    "Vector",
    "as_rows",
    "check_finite",
    "check_groups",
    "check_integer",
    "check_labels",
    "check_rows",
    "check_weights",
    "estimator_rows",
    "freeze",
    "output_dtype",
    "require_finite",
    "row_blocks",
]

Matrix: TypeAlias = NDArray[np.float64]
Vector: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Label: TypeAlias = bool | int | float | str
Labels: TypeAlias = NDArray[Any]
Rows: TypeAlias = NDArray[Any]
"""An (n, d) array of any real dtype, as the caller passed it."""

WEIGHTS = (1e-100, 1e100)
"""The largest weight lies between these, so that squares of sums of weights neither vanish nor overflow."""
BLOCK_BYTES = 6 * 2**20
"""Rows are processed in float64 blocks of about this size: large enough for BLAS, small compared with the data."""


def as_rows(X: Any) -> Any:
    """Return torch tensors as NumPy arrays, without importing torch; return anything else unchanged."""
    if hasattr(X, "detach") and hasattr(X, "cpu"):
        X = X.detach().cpu()
        # NumPy has no bfloat16; widening it to float32 is exact
        return X.float().numpy() if str(X.dtype) == "torch.bfloat16" else X.numpy()
    return X


def check_rows(X: Any, *, dim: int | None = None, caller: str = "this call") -> Rows:
    """Return ``X`` as a real, dense (n, d) array in its own dtype; `require_finite` checks its values."""
    from sklearn.utils import check_array  # a second of imports, which maps and saved moments do not need

    if np.ma.is_masked(X):
        raise DataError(f"{caller} got X with masked entries; fill them or drop those rows.")
    try:
        rows: Rows = check_array(as_rows(X), dtype=None, ensure_all_finite=False, estimator=caller)
        if rows.dtype.kind not in "fiub":
            rows = np.asarray(rows, dtype=np.float64)
    except TypeError as error:
        raise NotNumericError(f"{caller} takes a dense array of real numbers: {error}") from error
    except ValueError as error:
        remedy = "Pass an (n, d) array of real numbers, one row per vector."
        raise _bad_rows(error)(f"{caller} cannot use X: {error} {remedy}") from error
    if dim is not None and rows.shape[1] != dim:
        raise ShapeError(
            f"{caller} got {rows.shape[1]} features; it was made for {dim}. "
            "Extract X at the site used for fitting, or fit again."
        )
    return rows


def estimator_rows(estimator: Any, X: Any, *, reset: bool, remedy: str) -> Rows:
    """Return ``X`` by `check_rows`, and let scikit-learn note (``reset``) or compare its width and feature names."""
    from sklearn.utils.validation import validate_data

    X = X if hasattr(X, "iloc") else as_rows(X)
    rows = check_rows(X, caller=type(estimator).__name__)
    try:
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    except ValueError as error:
        raise ShapeError(f"{error} {remedy}, or fit again.") from error
    return rows


def _bad_rows(error: ValueError) -> type[NotNumericError] | type[ShapeError]:
    words = ("dim", "shape", "sample", "feature", "inhomogeneous")
    return ShapeError if any(word in str(error) for word in words) else NotNumericError


def require_finite(X: Rows, *, caller: str = "this call", rows: NDArray[np.intp] | None = None) -> None:
    """Raise a `DataError` that names the first row and column with NaN or infinity; ``rows`` are those that count."""
    if X.dtype.kind != "f":
        return
    rows = np.arange(len(X)) if rows is None else rows
    for block in row_blocks(len(rows), X.shape[1]):
        finite = np.isfinite(X[rows[block]])
        if not finite.all():
            i, j = np.argwhere(~finite)[0]
            raise DataError(
                f"{caller} got X with NaN or infinity, first at row {rows[block][i]}, column {j}. "
                "Drop or repair those rows."
            )


def check_labels(z: Any, n: int, *, caller: str = "this call") -> tuple[list[Label], NDArray[np.intp]]:
    """Return the sorted classes of ``z`` and, per row, the index of its class.

    Booleans, integers, strings and whole floats (0.0, 1.0) are labels; continuous numbers are not.
    """
    if z is None:
        raise LabelError(
            f"{caller} requires y to be passed, but the target y is None: "
            "give the concept label of each row, as fit(X, z) or fit(X, concept=z)."
        )
    z = as_rows(z)
    if np.ma.is_masked(z):
        raise LabelError(f"{caller} got labels with masked entries; give every row a label or drop the row.")
    # NumPy would turn a list of mixed labels into strings before they are checked
    z = np.asarray(z, dtype=object) if isinstance(z, list | tuple) else np.asarray(z)
    if z.ndim == 2 and z.shape[1] == 1:
        z = z[:, 0]
    if z.ndim != 1 or len(z) != n:
        raise LabelError(
            f"{caller} got labels of shape {z.shape} for {n} rows; it needs one label per row, shape ({n},)."
            + (" LEACE(concept_type='continuous') takes several numbers per row." if z.ndim == 2 else "")
        )
    if z.dtype.kind == "O":
        z = _plain_labels(z, caller)
    if z.dtype.kind == "f":
        _require_whole(z, caller)
    elif z.dtype.kind not in "biuUT":
        raise LabelError(
            f"{caller} got labels of dtype {z.dtype}; it takes booleans, integers or strings. Convert them first."
        )
    classes, codes = np.unique(z, return_inverse=True)
    labels = classes.tolist()
    if z.dtype.kind in "uT":
        _require_unchanged(labels, np.array(labels), caller)  # callers turn the list into an array again
    return labels, codes


def _require_whole(z: Labels, caller: str) -> None:
    if not np.isfinite(z).all():
        raise LabelError(f"{caller} got labels with NaN or infinity; give every row a label or drop the row.")
    if (z != np.round(z)).any():
        raise LabelError(
            f"{caller} got continuous labels (Unknown label type: continuous), for example "
            f"{z[z != np.round(z)][0]}; classes are needed. Erase the numbers as they are with "
            "LEACE(concept_type='continuous'), or bin them into classes: quantile_bins(z, 4)."
        )


def _plain_labels(z: Labels, caller: str) -> Labels:
    if any(_is_missing(label) for label in z):
        raise LabelError(f"{caller} got missing labels (None or NaN); give every row a label or drop the row.")
    families = {_family(label) for label in z}
    if len(families) > 1 or None in families:
        kinds = ", ".join(sorted({type(label).__name__ for label in z}))
        raise LabelError(f"{caller} got labels of several or unknown types ({kinds}); use one type for all of them.")
    plain = np.array(z.tolist())
    _require_unchanged(z.tolist(), plain, caller)
    return plain


def _require_unchanged(labels: list[Any], plain: Labels, caller: str) -> None:
    # integers beyond 64 bits become floats, and strings lose a NUL at their end: classes would merge
    for label, stored in zip(labels, plain.tolist(), strict=True):
        if label != stored:
            raise LabelError(
                f"{caller} cannot keep the label {label!r} apart from {stored!r}: NumPy arrays do not hold integers "
                "beyond 64 bits and strings that end in NUL. Rename the classes."
            )


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # pandas.NA is neither equal nor unequal to itself
        return True


def _family(label: Any) -> str | None:
    if isinstance(label, bool | np.bool_):
        return "boolean"
    if isinstance(label, Real):
        return "number"
    return "text" if isinstance(label, str) else None


def check_weights(sample_weight: Any, n: int, *, caller: str = "this call") -> Vector | None:
    """Return ``sample_weight`` as (n,) float64, or None; a weight of 2 counts the row twice, 0 not at all."""
    if sample_weight is None:
        return None
    if np.ma.is_masked(sample_weight):
        raise DataError(f"{caller} got sample_weight with masked entries; give every row a weight.")
    w = np.asarray(as_rows(sample_weight))
    if w.dtype.kind not in "fiub":
        raise DataError(f"{caller} got sample_weight of dtype {w.dtype}; it takes real numbers.")
    if w.ndim != 1 or len(w) != n:
        raise ShapeError(f"{caller} got sample_weight of shape {w.shape} for {n} rows; it needs shape ({n},).")
    w = w.astype(np.float64)
    if not np.isfinite(w).all() or (w < 0).any():
        raise DataError(f"{caller} got sample_weight with negative or non-finite entries; use finite weights >= 0.")
    if not w.any():
        raise DataError(f"{caller} got sample_weight of zeros only; give some rows a positive weight.")
    smallest, largest = WEIGHTS
    if not smallest <= w.max() <= largest:
        raise DataError(
            f"{caller} got sample_weight of at most {w.max():.3g}; squares of weights must fit into float64, so the "
            f"largest must lie between {smallest:g} and {largest:g}. Multiply all weights by one constant that brings "
            "them near 1."
        )
    return w


def check_groups(groups: Any, n: int, *, caller: str = "this call") -> NDArray[np.intp] | None:
    """Return the number of each row's group (n,), or None where ``groups`` is None; any hashable labels are taken."""
    if groups is None:
        return None
    groups = as_rows(groups)
    if np.ma.is_masked(groups):
        raise LabelError(f"{caller} got groups with masked entries; give every row a group or drop the row.")
    shape = np.shape(groups) if isinstance(groups, np.ndarray) else (len(groups),) if hasattr(groups, "__len__") else ()
    if isinstance(groups, str | bytes) or shape != (n,):
        given = f"the string {groups!r}" if isinstance(groups, str | bytes) else f"groups of shape {shape}"
        raise LabelError(
            f"{caller} got {given} for {n} rows; it needs one group label per row, shape ({n},). Pass, for example, "
            "the number of the text that each row came from."
        )
    if isinstance(groups, np.ndarray) and groups.dtype.kind in "biuU":
        return np.unique(groups, return_inverse=True)[1].astype(np.intp)
    numbers: dict[Any, int] = {}
    codes = np.empty(n, dtype=np.intp)
    for i, label in enumerate(groups):
        if _is_missing(label):
            raise LabelError(
                f"{caller} got no group for row {i} ({label!r}); give every row a group. A row that belongs to no "
                "other row is a group of its own, with a label of its own."
            )
        try:
            codes[i] = numbers.setdefault(label, len(numbers))
        except TypeError as error:
            raise LabelError(
                f"{caller} got the group {label!r} for row {i}; a group label must be hashable, such as a string, a "
                "number or a tuple."
            ) from error
    return codes


def check_integer(name: str, value: Any, *, least: int = 1) -> int:
    """Return ``value`` as an int; raise a `ParameterError` unless it is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ParameterError(f"{name} is {value!r}; it must be a whole number of at least {least}.")
    return int(value)


def check_finite(name: str, value: Any, *, needed: str = "one finite number") -> float:
    """Return ``value`` as a float; raise a `ParameterError` that names what is ``needed`` unless it is finite."""
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ParameterError(f"{name} is {value!r:.40}; it must be {needed}.")
    return number


def output_dtype(X: Rows) -> np.dtype[Any]:
    """Return the dtype of results: that of ``X`` if it is float32 or float64, float32 otherwise."""
    return X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float32)


def row_blocks(n: int, d: int, *, itemsize: int = 8) -> Iterator[slice]:
    """Yield slices that cover ``n`` rows in blocks of about `BLOCK_BYTES`."""
    size = max(1, BLOCK_BYTES // max(1, d * itemsize))
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def freeze(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view, so that a frozen value cannot be changed through its arrays."""
    view = array.view()
    view.flags.writeable = False
    return view
