"""`Shard`: a piece of the data that is read, counted and stored as a unit."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from repsurgery.arrays import Labels, Rows
from repsurgery.checkpoint import digest
from repsurgery.errors import DataError, LabelError, ShapeError
from repsurgery.scale.formats.stored import Header, Stored, family_of, label_family

__all__ = ["Extent", "FileShard", "Schema", "Shard", "file_stamp", "file_state", "identity_of"]


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows ``start`` to ``stop`` (None: to the end) of a place, which is given as a digest of its name and state."""

    place: str
    start: int = 0
    stop: int | None = None

    def meets(self, other: "Extent") -> bool:
        """Whether some row is in both."""
        return (
            self.place == other.place
            and (other.stop is None or self.start < other.stop)
            and (self.stop is None or other.start < self.stop)
        )


@dataclass(frozen=True, slots=True)
class Schema:
    """The properties of a shard that are known before its rows are read.

    Attributes
    ----------
    rows : int or None
        None where the number is unknown, as for a stream.
    width : int
        The number of features d.
    dtype : str
    labels : str
        "boolean", "number" or "text".
    features : tuple of str or None
        The names of the features, in order; None where they have none, as in an array.
    """

    rows: int | None
    width: int
    dtype: str
    labels: str
    features: tuple[str, ...] | None = None


class Shard(ABC):
    """Labelled vectors in one place. Subclass it to read vectors from another kind of place.

    A shard is sent to workers, so it must be small and picklable; its rows are not sent.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the shard in messages."""

    @property
    def first_row(self) -> int:
        """The index of the first row in its file, for messages that locate a row."""
        return 0

    @property
    def stable(self) -> bool:
        """Whether the fingerprint identifies the rows beyond this process. If not, no work on the shard is kept."""
        return True

    @abstractmethod
    def schema(self) -> Schema:
        """Read headers only; raise `DataError` where they cannot be read."""

    @abstractmethod
    def fingerprint(self) -> Mapping[str, Any]:
        """Return everything that determines the rows, as JSON; when it changes, the shard is counted again."""

    def stamp(self) -> tuple[int, ...]:
        """Return numbers that change whenever the rows may have changed although the fingerprint did not.

        Where they differ from those of an earlier run, the rows are read and compared by their digest. Empty: the
        fingerprint determines the rows.
        """
        return ()

    @abstractmethod
    def batches(self, rows: int) -> Iterator[tuple[Rows, Labels]]:
        """Yield vectors (at most ``rows``, d) and their labels."""

    def extent(self) -> Extent:
        """Return which rows these are, so that merging can tell what was counted before: by default, all of it."""
        return Extent(digest(self.fingerprint()))


@dataclass(frozen=True, slots=True)
class FileShard(Shard):
    """Rows ``start`` to ``stop`` (None: to the end) of vectors and labels on disk."""

    vectors: Stored
    labels: Stored
    start: int = 0
    stop: int | None = None

    @property
    def name(self) -> str:
        """The path, and the rows where the shard is a part of the file."""
        cut = "" if self.stop is None else f"[{self.start}:{self.stop}]"
        return f"{self.vectors.path}{cut}"

    @property
    def first_row(self) -> int:
        """The index of the first row in the file."""
        return self.start

    def schema(self) -> Schema:
        """Read both headers and compare them."""
        X, z = self.vectors.header(), self.labels.header()
        if len(X.shape) != 2:
            raise ShapeError(
                f"{self.vectors.path} holds an array of shape {X.shape}; vectors have the shape (rows, features). "
                "If these are labels, give them with --labels, patterns in quotes."
            )
        _check_labels(self.vectors.path, X, self.labels.path, z)
        rows = X.shape[0] if self.stop is None else self.stop - self.start
        return Schema(rows, X.shape[1], X.dtype, label_family(z.dtype, self.labels.path), X.features)

    def fingerprint(self) -> Mapping[str, Any]:
        """Return paths, sizes, modification times and the range of rows."""
        return {
            "vectors": [repr(self.vectors), *file_state(self.vectors.path)],
            "labels": [repr(self.labels), *file_state(self.labels.path)],
            "rows": [self.start, self.stop],
        }

    def stamp(self) -> tuple[int, ...]:
        """Return the times of the last change of both files, which no program can set, and their inodes."""
        return *file_stamp(self.vectors.path), *file_stamp(self.labels.path)

    def extent(self) -> Extent:
        """Return the rows in the file of vectors, whatever columns and labels are read."""
        place = [str(self.vectors.path), *file_state(self.vectors.path)]
        return Extent(digest(place), self.start, self.stop)

    def batches(self, rows: int) -> Iterator[tuple[Rows, Labels]]:
        """Read vectors and labels side by side."""
        stop = self.vectors.header().shape[0] if self.stop is None else self.stop
        X = self.vectors.blocks(rows, self.start, stop)
        z = self.labels.blocks(rows, self.start, stop)
        yield from zip(X, (block.reshape(len(block)) for block in z), strict=True)


def identity_of(shard: Shard, *, skip_non_finite: bool) -> str:
    """Return a digest of everything that decides a shard's moments."""
    return digest({"fingerprint": shard.fingerprint(), "skip_non_finite": skip_non_finite})


def _check_labels(vectors: Path, X: Header, labels: Path, z: Header) -> None:
    if z.shape not in ((X.shape[0],), (X.shape[0], 1)):
        raise LabelError(
            f"{vectors} has {X.shape[0]} rows and {labels} has labels of shape {z.shape}; each row needs one label."
        )
    if X.shape[0] == 0:
        raise DataError(f"{vectors} is empty: it has no rows. Leave it out, or write it again.")
    if X.shape[1] == 0:
        raise DataError(f"{vectors} holds an array of shape {X.shape}, without features. Write it again.")
    if family_of(X.dtype) != "number":
        raise DataError(f"{vectors} holds {X.dtype}, which are not numbers; vectors are real. Convert or leave it out.")


def file_state(path: Path) -> list[Any]:
    """Return size and modification time of a file, or a digest of those of all files in a folder."""
    if path.is_file():
        stat = path.stat()
        return [stat.st_size, stat.st_mtime_ns]
    # every file of a folder matters: one that is restored from a copy need not be the newest
    stats = [(file, file.stat()) for file in sorted(path.rglob("*")) if file.is_file()]
    state = [(str(file.relative_to(path)), stat.st_size, stat.st_mtime_ns) for file, stat in stats]
    return [sha256(repr(state).encode()).hexdigest()]


def file_stamp(path: Path) -> tuple[int, ...]:
    """Return time of the last change and inode of a file, or of all files in a folder in the order of their names."""
    files = [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if file.is_file()]
    stats = [file.stat() for file in files]
    return tuple(number for stat in stats for number in (stat.st_ctime_ns, stat.st_ino))
