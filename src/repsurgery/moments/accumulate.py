"""Mean and scatter (or its factor) of rows, computed in blocks and without a centred copy of the data."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, qr

from repsurgery.arrays import Matrix, Rows, Vector, require_finite, row_blocks
from repsurgery.errors import DataError
from repsurgery.linalg.spectrum import mirror_upper
from repsurgery.moments.sketch import BLOCK_ROWS, FLOAT32_ROWS, Sketch, SketchSum

__all__ = [
    "Centre",
    "about_mean",
    "exact_sum",
    "factor_of",
    "float64_blocks",
    "judged_dtype",
    "pivot_of",
    "quietly",
    "require_equal",
    "require_exact",
    "scatter_of",
    "triangle",
    "underflowed",
    "without_mean",
]

MOST_EXACT = 2**53
Centre = tuple[Vector, Vector]
"""A mean (d,) in float64, and the residue (d,) that was lost by rounding it."""


# overflow shows as infinity in the result, where it is checked
quietly = np.errstate(invalid="ignore", over="ignore")


@quietly
def scatter_of(
    X: Rows, rows: NDArray[np.intp], w: Vector | None, *, float32_products: bool
) -> tuple[Centre, Matrix, Sketch]:
    """Return the mean, the scatter Σ w (x − mean)(x − mean)ᵀ (d, d) and the sketch of the rows with indices ``rows``.

    Rows are shifted by the mean of the first block before they are multiplied, so that an offset of 1e6 costs no
    digits; one rank-one correction removes the remaining shift.
    """
    d = X.shape[1]
    pivot = pivot_of(X, rows, w)
    add = _Float32Products(d) if float32_products else _Float64Products(d)
    total, sketch = np.zeros(d), SketchSum(d)
    for start in range(0, len(rows), len(add.buffer)):
        picked = rows[start : start + len(add.buffer)]
        Z = add.buffer[: len(picked)]
        for part, raw, weights in float64_blocks(X, picked, w):
            np.subtract(raw, pivot, out=Z[part], casting="same_kind")
            sketch.add(raw, weights)
        if w is None:
            total += np.ones(len(Z), Z.dtype) @ Z if Z.dtype == np.float64 else Z.sum(axis=0, dtype=np.float64)
        else:
            root = np.sqrt(w[picked])
            Z *= root[:, None].astype(Z.dtype)
            total += root @ Z
        add(Z)
    weight = float(len(rows)) if w is None else float(w[rows].sum())
    centre, S = about_mean(pivot, total, weight, add.scatter())
    _require_usable(X, rows, centre[0], np.diagonal(S))
    return centre, S, sketch.sketch()


def float64_blocks(
    X: Rows, rows: NDArray[np.intp] | None, w: Vector | None
) -> Iterator[tuple[slice, Matrix, Vector | None]]:
    """Yield the rows with indices ``rows``, or all, in blocks that stay in the cache: place, float64 rows, weights.

    Each block is overwritten by the next one.
    """
    n = len(X) if rows is None else len(rows)
    buffer = np.empty((min(BLOCK_ROWS, n), X.shape[1]))
    for start in range(0, n, BLOCK_ROWS):
        part = slice(start, min(start + BLOCK_ROWS, n))
        raw = buffer[: part.stop - start]
        picked = part if rows is None else rows[part]
        raw[:] = X[picked]
        require_exact(X.dtype, raw)
        yield part, raw, None if w is None else w[picked]


def about_mean(pivot: Vector, total: Vector, weight: float, S: Matrix) -> tuple[Centre, Matrix]:
    """Return mean and scatter about it, from Σ w (x − pivot) and the upper triangle of Σ w (x − pivot)(x − pivot)ᵀ.

    ``S`` is in Fortran order and overwritten.
    """
    S = blas.dsyr(-1.0 / weight, total, a=S, lower=0, overwrite_a=1)
    np.maximum(np.diagonal(S), 0.0, out=np.einsum("ii->i", S))
    return exact_sum(pivot, total / weight), mirror_upper(S)


def exact_sum(a: Vector, b: Vector) -> Centre:
    """Return a + b, rounded, and the rounding error: together they are the exact sum."""
    whole = a + b
    from_b = whole - a
    return whole, (a - (whole - from_b)) + (b - from_b)


@quietly
def factor_of(X: Rows, rows: NDArray[np.intp], w: Vector | None) -> tuple[Centre, Matrix, Sketch]:
    """Return the mean, triangular R (n − 1, d) with RᵀR = scatter, and the sketch, for fewer rows than dimensions."""
    pivot, sketch = pivot_of(X, rows, w), SketchSum(X.shape[1])
    Z = np.empty((len(rows), X.shape[1]))
    for part, raw, weights in float64_blocks(X, rows, w):
        np.subtract(raw, pivot, out=Z[part])
        sketch.add(raw, weights)
    shift = Z.mean(axis=0) if w is None else w[rows] @ Z / w[rows].sum()
    Z -= shift
    mean, residue = exact_sum(pivot, shift)
    _require_usable(X, rows, mean, Z)
    root = np.ones(len(rows)) if w is None else np.sqrt(w[rows])
    if w is not None:
        Z *= root[:, None]
    R = triangle(without_mean(Z, root))
    _require_usable(X, rows, mean, np.square(R).sum(axis=0))
    return (mean, residue), R, sketch.sketch()


def without_mean(Z: Matrix, root: Vector) -> Matrix:
    """Return n − 1 rows Y with YᵀY = ZᵀZ, for rows (n, d) with rootᵀZ = 0: centred rows times ``root``, √w.

    A Householder reflection takes ``root`` to the last axis, so that the last of the reflected rows is zero up to
    rounding. Dropping the last row of a triangular factor instead would be wrong wherever its leading columns are
    dependent, such as a constant one.
    """
    u = root / np.linalg.norm(root)
    v = u.copy()
    v[-1] += 1.0 if u[-1] >= 0 else -1.0
    reflected: Matrix = Z[:-1] - np.outer(v[:-1], (v @ Z) / abs(v[-1]))
    return reflected


def triangle(stack: Matrix) -> Matrix:
    """Return upper trapezoidal R (min(m, d), d) with RᵀR = stackᵀ stack."""
    if 0 in stack.shape:
        return np.zeros((0, stack.shape[1]))
    R = qr(stack, mode="r", check_finite=False, overwrite_a=True)[0]
    return np.ascontiguousarray(R[: min(stack.shape)])


def pivot_of(X: Rows, rows: NDArray[np.intp], w: Vector | None = None) -> Vector:
    """Return what is subtracted from ``rows`` before anything is squared: the mean of the first block.

    With weights it is the weighted mean of all rows: far from it, the square of one heavy row would cost the digits of
    all others.
    """
    # relative to one of the rows, so that a constant column has a scatter of exactly zero
    first = X[rows[0]].astype(np.float64)
    blocks = iter(row_blocks(len(rows), X.shape[1]))
    if w is None:
        shift: Vector = np.subtract(X[rows[next(blocks)]], first, dtype=np.float64).mean(axis=0)
    else:
        total = sum(w[rows[block]] @ np.subtract(X[rows[block]], first, dtype=np.float64) for block in blocks)
        shift = total / w[rows].sum()
    pivot: Vector = first + shift
    return pivot


def judged_dtype(X: Rows) -> str:
    """Return the dtype whose rounding sets the rank tolerance: integers are exact, half precision counts as float32."""
    return "float64" if X.dtype.itemsize >= 8 or X.dtype.kind in "iub" else "float32"


def require_exact(dtype: np.dtype[Any], converted: Matrix) -> None:
    """Raise `DataError` where rows of integers of this dtype may have lost digits when they became float64."""
    if dtype.kind in "iu" and dtype.itemsize > 4 and np.abs(converted).max(initial=0.0) >= MOST_EXACT:
        raise DataError(
            f"moments got integers of {np.abs(converted).max():.6g}, and float64 holds all integers only below 2^53 = "
            f"{MOST_EXACT:,}. Subtract a whole number from each column that brings it near 0, or convert X to float64 "
            "if its last digits do not matter."
        )


def require_equal(X: Rows, rows: NDArray[np.intp]) -> None:
    """Raise `DataError` where the rows with indices ``rows``, whose variance was computed as 0, are not all equal."""
    if any((X[rows[i]] != X[rows[0]]).any() for i in row_blocks(len(rows), X.shape[1])):
        raise underflowed()


def underflowed() -> DataError:
    """Return the error of rows that differ, but whose variance was computed as 0."""
    return DataError(
        "moments underflowed: these rows differ, but the squares of their differences are too small for float64. "
        "Multiply X by a constant that brings it near 1 and fit again."
    )


def _require_usable(X: Rows, rows: NDArray[np.intp], mean: Vector, spread: NDArray[Any]) -> None:
    if not (np.isfinite(mean).all() and np.isfinite(spread).all()):
        require_finite(X, caller="moments", rows=rows)
        raise DataError(
            "moments overflowed: the squares of these values exceed float64 (or float32 with "
            "precision='float32-products'). Divide X by a constant and fit again."
        )


class _Float64Products:
    """Accumulate ZᵀZ in place, in float64."""

    def __init__(self, d: int) -> None:
        size = next(iter(row_blocks(2**62, d))).stop
        self.buffer = np.empty((size, d))
        self._S = np.zeros((d, d), order="F")

    def __call__(self, Z: Matrix) -> None:
        self._S = blas.dsyrk(1.0, Z.T, beta=1.0, c=self._S, lower=0, overwrite_c=1)

    def scatter(self) -> Matrix:
        return self._S


class _Float32Products:
    """Multiply blocks in float32, each column scaled by a power of two, and add the products in float64."""

    def __init__(self, d: int) -> None:
        size = min(next(iter(row_blocks(2**62, d))).stop, FLOAT32_ROWS)
        self.buffer = np.empty((size, d), dtype=np.float32)
        self._S = np.zeros((d, d), order="F")
        self._scale: Vector | None = None

    def __call__(self, Z: NDArray[np.float32]) -> None:
        if self._scale is None:
            self._scale = _powers_of_two(np.abs(Z).max(axis=0, initial=0.0).astype(np.float64))
        np.multiply(Z, (1 / self._scale).astype(np.float32), out=Z)
        self._S += blas.ssyrk(1.0, Z.T, lower=0)

    def scatter(self) -> Matrix:
        if self._scale is not None:
            self._S *= self._scale[:, None]
            self._S *= self._scale
        return self._S


def _powers_of_two(largest: Vector) -> Vector:
    """Return a power of two (d,) near the largest value of each column of the first block, at least 2⁻⁴⁰ of the top.

    Squares of the smallest columns do not underflow, and those of columns that grow in later blocks do not overflow.
    """
    top = float(largest.max(initial=0.0))
    if not 0 < top < np.inf:
        return np.ones(len(largest))
    least = np.maximum(np.nan_to_num(largest, nan=top), top * 2.0**-40)
    powers: Vector = np.exp2(np.clip(np.round(np.log2(least)), -120, 120))
    return powers
