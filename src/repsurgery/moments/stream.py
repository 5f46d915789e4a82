"""`stream_moments`: class moments of batches, in memory that does not grow with the number of rows."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from repsurgery.arrays import BLOCK_BYTES, Label, Matrix, Rows, Vector, check_groups, check_labels, check_rows
from repsurgery.errors import DataError
from repsurgery.moments.accumulate import (
    about_mean,
    float64_blocks,
    judged_dtype,
    pivot_of,
    quietly,
    require_exact,
    underflowed,
)
from repsurgery.moments.by_class import ClassMoments
from repsurgery.moments.combine import added
from repsurgery.moments.group_totals import GroupTotal
from repsurgery.moments.moments import Moments
from repsurgery.moments.sketch import Sketch, SketchSum, weighted_sizes

__all__ = ["block_rows", "stream_moments"]

PIVOT_ROWS = 64
"""The pivot of a run is the mean of so many rows: about 1/8 standard deviation off, which costs 0.01 digits."""
FAR = 64.0
"""A block whose squared distance from the pivot exceeds this many variances starts a new run with a new pivot."""


def stream_moments(batches: Iterable[tuple[Any, ...]]) -> ClassMoments:
    """Return the moments of all rows of ``batches``, pairs of X (n, d) and labels (n,), in float64.

    Batches may have different dtypes; the coarsest counts, as in a sum of moments.

    Batches may also be triples of X, labels and groups (n,); then every batch holds whole groups, because the same
    label in two batches stands for two groups.

    The rows of a class are one part of the ledger, whatever the batches: a batch that comes twice cannot be told from
    rows that are equal.

    One buffer per class collects rows until a whole block can be multiplied, so that a class that is rare in every
    batch costs no more than a frequent one. Memory is one batch plus about 1.5 d² numbers per class.

    Guarantees
    ----------
    Equal to `ClassMoments.of` of all rows, beyond rounding (test_a_stream_has_the_moments_of_its_rows).
    The size of the batches changes no bit of means and scatters (test_the_size_of_the_batches_changes_no_bit).
    """
    sums: dict[Label, _Sum] = {}
    space: Matrix | None = None
    grouped: set[bool] = set()
    for X, z, *more in batches:
        X = check_rows(X, dim=None if space is None else space.shape[1], caller="stream_moments")
        labels, codes = check_labels(z, len(X), caller="stream_moments")
        groups = check_groups(more[0] if more else None, len(X), caller="stream_moments")
        grouped.add(groups is not None)
        _require_one_kind(grouped)
        if space is None:
            space = np.empty((block_rows(X.shape[1]), X.shape[1]))
        for code, label in enumerate(labels):
            rows = np.flatnonzero(codes == code) if len(labels) > 1 else np.arange(len(X))
            if label not in sums:
                sums[label] = _Sum(X.dtype, space)
            sums[label].take(X, rows, groups)
    return ClassMoments({label: one.moments() for label, one in sums.items()})


def _require_one_kind(grouped: set[bool]) -> None:
    if len(grouped) > 1:
        raise DataError(
            "stream_moments got some batches with groups and some without. Give groups with every batch; a row that "
            "belongs to no other row is a group of its own."
        )


def block_rows(d: int) -> int:
    """Return how many rows of d numbers are multiplied at a time."""
    # with fewer than d/2 rows, reading and writing the d × d sum would dominate the cost
    return max(BLOCK_BYTES // (8 * d), d // 2, 1)


class _Sum:
    """The rows of one class: a buffer of waiting rows, the current run of blocks about one pivot, and earlier runs."""

    def __init__(self, dtype: np.dtype[Any], space: Matrix) -> None:
        self._space = space
        block, d = space.shape
        # at least d rows are collected before the first product, because fewer are stored as a factor
        self._waiting = np.empty((block * -(-d // block), d), dtype.newbyteorder("="))
        self._coarsest = judged_dtype(self._waiting)
        self._filled = 0
        self._run: _Run | None = None
        self._before: Moments | None = None
        self._groups: GroupTotal | None = None
        self._first: Rows | None = None
        self._equal = True
        # the groups, and the rows that are multiplied, are counted once more, for the sketch
        self._sizes = (0.0, 0.0)
        self._sketch = SketchSum(d)

    def take(self, X: Rows, rows: NDArray[np.intp], groups: NDArray[np.intp] | None = None) -> None:
        """Add the rows of X with indices ``rows``; row i belongs to the group ``groups[i]``."""
        if X.dtype != self._waiting.dtype:
            self._admit(X, rows)
        if groups is not None:
            total = GroupTotal.of(X, rows, groups)
            self._groups = total if self._groups is None else self._groups + total
            count, squares = weighted_sizes(groups[rows], None)
            self._sizes = (self._sizes[0] + count, self._sizes[1] + squares)
        start = 0
        while start < len(rows):
            taken = rows[start : start + len(self._waiting) - self._filled]
            into = self._waiting[self._filled : self._filled + len(taken)]
            if X.dtype == into.dtype:
                np.take(X, taken, axis=0, out=into, mode="clip")
            else:
                into[:] = X[taken]
            self._filled += len(taken)
            start += len(taken)
            if self._filled == len(self._waiting):
                self._multiply()

    def _admit(self, X: Rows, rows: NDArray[np.intp]) -> None:
        """Prepare for rows of another dtype; as in a sum, the coarsest of all dtypes counts."""
        dtype = np.promote_types(self._waiting.dtype, X.dtype)
        if dtype.kind == "f":  # integers lose digits where they become float64 here
            for values in (X[rows], self._waiting[: self._filled]):
                require_exact(values.dtype, values.astype(np.float64))
        self._coarsest = max(self._coarsest, judged_dtype(X), key=("float64", "float32").index)
        self._waiting = self._waiting.astype(dtype)

    def _multiply(self) -> None:
        if self._first is None:
            self._first = self._waiting[:1].copy()
        if self._equal:
            self._equal = bool((self._waiting[: self._filled] == self._first).all())
        for start in range(0, self._filled, len(self._space)):
            rows = self._waiting[start : min(start + len(self._space), self._filled)]
            if self._run is None:
                self._run = _Run(rows)
            if not self._run.add(rows, self._space, self._sketch):
                self._close()
                self._run = _Run(rows)
                self._run.add(rows, self._space)
        self._filled = 0

    def _close(self) -> None:
        if self._run is not None:
            moments = self._run.moments()
            self._before = moments if self._before is None else added(self._before, moments)
        self._run = None

    def moments(self) -> Moments:
        """Return the moments of all rows added so far."""
        summed, sketch = self._summed()
        if self._groups is not None:
            summed, sketch = summed.with_groups(self._groups.groups), sketch.with_groups(self._sizes)
        return replace(summed, dtype=self._coarsest).counted_by(sketch)

    def _summed(self) -> tuple[Moments, Sketch]:
        if self._run is None and self._before is None:
            moments = Moments.of_rows(self._waiting, np.arange(self._filled), None, "float64")
            assert moments.sketch is not None
            return moments, moments.sketch
        self._multiply()
        self._close()
        assert self._before is not None
        if not (self._equal or self._before.variance.any()):
            raise underflowed()
        return self._before, self._sketch.sketch()


class _Run:
    """Σ (x − pivot) and Σ (x − pivot)(x − pivot)ᵀ over blocks that lie near the pivot."""

    def __init__(self, rows: Rows) -> None:
        d = rows.shape[1]
        self._dtype = judged_dtype(rows)
        self._count = 0
        self._pivot: Vector = pivot_of(rows, np.arange(min(len(rows), PIVOT_ROWS)))
        self._total = np.zeros(d)
        self._S = np.zeros((d, d), order="F")

    @quietly
    def add(self, rows: Rows, space: Matrix, sketch: SketchSum | None = None) -> bool:
        """Add a block, also to ``sketch``; return False where its distance from the pivot would cost digits.

        Then only the sketch has counted it.
        """
        Z = space[: len(rows)]
        for part, raw, _ in float64_blocks(rows, None, None):
            np.subtract(raw, self._pivot, out=Z[part])
            if sketch is not None:
                sketch.add(raw)
        total = np.ones(len(Z)) @ Z
        if self._count and self._far(total / len(Z)):
            return False
        self._total += total
        self._S = blas.dsyrk(1.0, Z.T, beta=1.0, c=self._S, lower=0, overwrite_c=1)
        self._count += len(Z)
        return True

    def _far(self, shift: Vector) -> bool:
        variance = np.diagonal(self._S) / self._count - np.square(self._total / self._count)
        return bool((np.square(shift) > FAR * variance).any())

    @quietly
    def moments(self) -> Moments:
        """Return the moments of the blocks, which ends the run."""
        (mean, residue), S = about_mean(self._pivot, self._total, float(self._count), self._S)
        if not (np.isfinite(mean).all() and np.isfinite(np.diagonal(S)).all()):
            raise DataError(
                "The batches hold NaN, infinity, or values whose squares exceed float64. "
                "Drop or repair them, or divide all rows by a constant."
            )
        return Moments(self._count, float(self._count), mean, S, None, self._dtype, residue=residue)
