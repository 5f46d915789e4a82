"""`count_shard`: the moments of one shard, a pure function that every engine runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Labels, Rows
from repsurgery.errors import DataError, ParameterError, SurgeryError
from repsurgery.moments import ClassMoments
from repsurgery.moments.stream import stream_moments
from repsurgery.scale.shards.shard import Schema, Shard

__all__ = ["BATCH_BYTES", "Counted", "NonFinite", "check_batch_rows", "content_of", "count_shard", "non_finite_rows"]

BATCH_BYTES = 8 * 2**20
"""Default size of a batch. Much larger batches allocate new pages with every read."""
SHOWN = 5


@dataclass(frozen=True, slots=True)
class NonFinite:
    """The number of rows with NaN or infinity, and the indices of the first of them in their file."""

    count: int = 0
    first: tuple[int, ...] = ()

    def __str__(self) -> str:
        more = ", …" if self.count > len(self.first) else ""
        rows = "row" if self.count == 1 else "rows"
        return f"{self.count} {rows} with NaN or infinity ({', '.join(map(str, self.first))}{more})"


@dataclass(frozen=True, slots=True)
class Counted:
    """The moments of a shard, the number of rows read, the rows left out, and a digest of all rows and labels read."""

    moments: ClassMoments
    rows: int
    non_finite: NonFinite
    content: str = ""


def count_shard(shard: Shard, *, batch_rows: int | None = None, skip_non_finite: bool = False) -> Counted:
    """Return the moments of a shard, read in batches.

    Parameters
    ----------
    shard : Shard
    batch_rows : int or None
        Rows in memory at a time; None: about 8 MiB of rows. The result is the same to the bit.
    skip_non_finite : bool
        Leave out rows with NaN or infinity; where no other rows remain, the moments are empty. Otherwise such rows
        raise a `DataError` with their number and positions.

    Raises
    ------
    DataError
        Rows with NaN or infinity, or fewer or more rows than the shard declares.
    """
    check_batch_rows(batch_rows)
    schema = shard.schema()
    screen, content = _Screen(shard.first_row, refuse=not skip_non_finite), _Content()
    moments = _moments(shard, screen.finite(content.noting(shard.batches(batch_rows or _usual_rows(schema)))))
    if screen.count and not skip_non_finite:
        raise DataError(f"{screen.non_finite()}. Drop or repair them, or leave them out (--skip-non-finite).")
    if schema.rows is not None and screen.rows != schema.rows:
        raise DataError(
            f"It declares {schema.rows} rows and {screen.rows} came, so it ended early or changed while it was read. "
            "Write it again, or run again when no process writes to it."
        )
    if not (moments or screen.count):
        raise DataError("It holds no rows. Leave it out, or write it again.")
    return Counted(moments, screen.rows, screen.non_finite(), content.digest())


def content_of(shard: Shard) -> str:
    """Return the digest of all rows and labels of a shard, as `count_shard` notes it."""
    content = _Content()
    for _ in content.noting(shard.batches(_usual_rows(shard.schema()))):
        pass
    return content.digest()


def _usual_rows(schema: Schema) -> int:
    return max(1, BATCH_BYTES // (4 * schema.width))


class _Content:
    """The digest of rows and labels and of their types, whatever the batches in which they come."""

    def __init__(self) -> None:
        self._rows, self._labels = sha256(), sha256()
        self._types: set[tuple[int, str, str]] = set()

    def noting(self, batches: Iterator[tuple[Rows, Labels]]) -> Iterator[tuple[Rows, Labels]]:
        """Yield the batches unchanged."""
        for X, z in batches:
            plain = z.dtype.kind in "biuf"
            # the same bytes are other numbers in another type or byte order
            self._types.add((X.shape[1], X.dtype.str, z.dtype.str if plain else "text"))
            self._rows.update(np.ascontiguousarray(X).data)
            if plain:
                self._labels.update(np.ascontiguousarray(z).data)
            else:
                self._labels.update("".join(f"{label!r}," for label in z.tolist()).encode("utf-8", "surrogatepass"))
            yield X, z

    def digest(self) -> str:
        """Return the digest of what came so far, as hexadecimal digits."""
        types = repr(sorted(self._types)).encode()
        return sha256(self._rows.digest() + self._labels.digest() + types).hexdigest()


def _moments(shard: Shard, batches: Iterator[tuple[Rows, Labels]]) -> ClassMoments:
    try:
        return stream_moments(batches)
    except SurgeryError as error:
        # the user named a shard and did not call stream_moments
        if not str(error).startswith("stream_moments "):
            raise
        raise type(error)(f"{shard.name}: {str(error).removeprefix('stream_moments ')}") from error


def check_batch_rows(batch_rows: int | None) -> None:
    """Raise a `ParameterError` unless ``batch_rows`` is None or at least 1."""
    if batch_rows is not None and batch_rows < 1:
        raise ParameterError(f"batch_rows is {batch_rows}; a batch has at least one row.")


class _Screen:
    """Passes finite rows on and records the positions of the others; with ``refuse``, it passes nothing after them."""

    def __init__(self, first_row: int, *, refuse: bool) -> None:
        self.rows = 0
        self._first_row = first_row
        self.count = 0
        self._first: list[int] = []
        self._refuse = refuse

    def finite(self, batches: Iterator[tuple[Rows, Labels]]) -> Iterator[tuple[Rows, Labels]]:
        """Yield the batches without their non-finite rows."""
        for X, z in batches:
            bad = non_finite_rows(X)
            self._note(bad)
            self.rows += len(X)
            if self.count and self._refuse:
                continue
            if not len(bad):
                yield X, z
            elif len(bad) < len(X):
                yield np.delete(X, bad, axis=0), np.delete(z, bad)

    def _note(self, bad: NDArray[np.intp]) -> None:
        self.count += len(bad)
        self._first += (self._first_row + self.rows + bad[: SHOWN - len(self._first)]).tolist()

    def non_finite(self) -> NonFinite:
        """Return the non-finite rows so far."""
        return NonFinite(self.count, tuple(self._first))


def non_finite_rows(X: Rows) -> NDArray[np.intp]:
    """Return the indices of rows with NaN or infinity."""
    if X.dtype.kind != "f":
        return np.empty(0, dtype=np.intp)
    if X.dtype.itemsize < 4:
        return np.flatnonzero(~np.isfinite(X).all(axis=1))
    # one product, as fast as reading, finds the rows that may be bad; only those are examined element by element
    with np.errstate(over="ignore", invalid="ignore"):
        suspects = np.flatnonzero(~np.isfinite(X @ np.ones(X.shape[1], X.dtype)))
    return suspects[~np.isfinite(X[suspects]).all(axis=1)]
