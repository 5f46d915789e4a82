"""`stream_moments`: batches in, class moments out, in memory that does not grow with the rows."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from repsurgery.arrays import BLOCK_BYTES, Label, Matrix, Rows, Vector, check_labels, check_rows
from repsurgery.errors import DataError
from repsurgery.moments.accumulate import about_mean, pivot_of, quietly
from repsurgery.moments.by_class import ClassMoments
from repsurgery.moments.moments import Moments, judged_dtype

__all__ = ["block_rows", "stream_moments"]

PIVOT_ROWS = 64
"""Their mean is the pivot of a run: an eighth of a standard deviation off, which costs a hundredth of a digit."""
FAR = 64.0
"""A block whose squared distance from the pivot exceeds this many variances gets a pivot of its own."""


def stream_moments(batches: Iterable[tuple[Any, Any]]) -> ClassMoments:
    """Return the moments of all rows of ``batches``, pairs of X (n, d) and labels (n,), in float64.

    Rows wait in one buffer per class until a block of them can be multiplied, so that a class that is rare in every
    batch costs no more than a frequent one. Memory is one batch, and about 1.5 d² per class.

    Guarantees
    ----------
    Equal to `ClassMoments.of` of all rows, beyond rounding (test_a_stream_has_the_moments_of_its_rows).
    The size of the batches changes no bit (test_the_size_of_the_batches_changes_no_bit).
    """
    sums: dict[Label, _Sum] = {}
    space: Matrix | None = None
    for X, z in batches:
        X = check_rows(X, dim=None if space is None else space.shape[1], caller="stream_moments")
        labels, codes = check_labels(z, len(X), caller="stream_moments")
        if space is None:
            space = np.empty((block_rows(X.shape[1]), X.shape[1]))
        for code, label in enumerate(labels):
            rows = np.flatnonzero(codes == code) if len(labels) > 1 else np.arange(len(X))
            if label not in sums:
                sums[label] = _Sum(X.dtype, space)
            sums[label].take(X, rows)
    return ClassMoments({label: found.moments() for label, found in sums.items()})


def block_rows(d: int) -> int:
    """Return how many rows of d numbers are multiplied at a time."""
    # a product of fewer than d/2 rows spends its time on reading and writing the d × d sum
    return max(BLOCK_BYTES // (8 * d), d // 2, 1)


class _Sum:
    """The rows of one class: those that wait, a run of blocks about one pivot, and the runs before it."""

    def __init__(self, dtype: np.dtype[Any], space: Matrix) -> None:
        self._space = space
        block, d = space.shape
        # as many rows as dimensions wait before the first product: fewer are kept as a factor
        self._waiting = np.empty((block * -(-d // block), d), dtype.newbyteorder("="))
        self._held = 0
        self._run: _Run | None = None
        self._before: Moments | None = None

    def take(self, X: Rows, rows: NDArray[np.intp]) -> None:
        """Add the named ``rows`` of X."""
        if X.dtype != self._waiting.dtype and not np.can_cast(X.dtype, self._waiting.dtype, "safe"):
            raise DataError(f"A batch of {X.dtype} follows batches of {self._waiting.dtype}. Use one dtype for all.")
        start = 0
        while start < len(rows):
            taken = rows[start : start + len(self._waiting) - self._held]
            into = self._waiting[self._held : self._held + len(taken)]
            if X.dtype == into.dtype:
                np.take(X, taken, axis=0, out=into, mode="clip")
            else:
                into[:] = X[taken]
            self._held += len(taken)
            start += len(taken)
            if self._held == len(self._waiting):
                self._multiply()

    def _multiply(self) -> None:
        for start in range(0, self._held, len(self._space)):
            rows = self._waiting[start : min(start + len(self._space), self._held)]
            if self._run is None or not self._run.add(rows, self._space):
                self._close()
                self._run = _Run(rows)
                self._run.add(rows, self._space)
        self._held = 0

    def _close(self) -> None:
        if self._run is not None:
            found = self._run.moments()
            self._before = found if self._before is None else self._before + found
        self._run = None

    def moments(self) -> Moments:
        """Return everything taken so far."""
        if self._run is None and self._before is None:
            return Moments.of_rows(self._waiting, np.arange(self._held), None, "float64")
        self._multiply()
        self._close()
        assert self._before is not None
        return self._before


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
    def add(self, rows: Rows, space: Matrix) -> bool:
        """Add a block; or, where its distance would cost digits, leave everything as it is and return False."""
        Z = space[: len(rows)]
        np.subtract(rows, self._pivot, out=Z)
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
                "Rows with NaN or infinity, or with squares that exceed float64. "
                "Drop or repair them, or divide all rows by a constant."
            )
        return Moments(self._count, float(self._count), mean, S, None, self._dtype, residue=residue)
