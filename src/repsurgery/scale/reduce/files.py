"""`merge_files`: add up moments from several machines without counting any rows twice."""

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from repsurgery.arrays import Label
from repsurgery.errors import DataError, LabelError, ShapeError
from repsurgery.files import digest_of
from repsurgery.moments import ClassMoments
from repsurgery.moments.by_class import to_contents
from repsurgery.outputs import check_output
from repsurgery.scale.reduce.parts import Origin, read_part, write_moments
from repsurgery.scale.shards.shard import Extent

__all__ = ["merge_files"]


def merge_files(files: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> ClassMoments:
    """Add up the moments in ``files``, write the sum to ``out`` and return it.

    One file is in memory at a time, besides the sum.

    Raises
    ------
    DataError
        The same file twice, a copy of it, or two files with the same shard, a copy of it, or overlapping pieces of it.
        Two cases cannot be detected: pieces of a file that was touched, copied or streamed with its folder and then cut
        differently, and files written by ``ClassMoments.save``, which contain no origins.
    ShapeError, LabelError
        Files of different widths, or with labels of different kinds.
    OutputError
        ``out`` is one of the files, or cannot be written. This is checked before any file is read.

    Guarantees
    ----------
    Files that counted the same shard are refused (test_merging_refuses_to_count_twice), also where it was cut, touched,
    copied or read with other options (test_the_same_rows_under_another_name_are_refused).
    """
    paths = [Path(file) for file in files]
    if len(paths) < 2:
        raise DataError(f"There is nothing to merge: {len(paths)} files were given, at least two are needed.")
    twice = [path for path, count in Counter(path.resolve() for path in paths).items() if count > 1]
    if twice:
        raise DataError(f"{twice[0]} is listed twice; its rows would be counted twice. List it once.")
    check_output(out, inputs=paths)
    total, merged = ClassMoments(), _Merged()
    for path in paths:
        moments, origins = read_part(path)
        merged.add(path, moments, origins)
        if len(total):
            _require_alike(paths[0], total, path, moments)
        total = total.merge(moments)
    write_moments(Path(out), total, merged.origins)
    return total


class _Merged:
    """What was merged so far: files by the digest of their moments, shards by theirs and by their extents."""

    def __init__(self) -> None:
        self.origins: list[Origin] = []
        self._files: dict[str, Path] = {}
        self._digests: dict[str, Path] = {}
        self._places: dict[str, list[tuple[Extent, Path]]] = defaultdict(list)

    def add(self, path: Path, moments: ClassMoments, origins: list[Origin]) -> None:
        """Add a file, or refuse it if some of its rows were merged already."""
        contents = to_contents(moments)
        digest = digest_of(contents.arrays, contents.header)
        if digest in self._files:
            raise DataError(
                f"{path} holds the same moments as {self._files[digest]}; list one of them, or rows count twice."
            )
        self._files[digest] = path
        shared = [other for other in map(self._holder, origins) if other is not None]
        if shared:
            raise DataError(
                f"{path} and {shared[0]} share the rows of {len(shared)} shards, which would be counted twice. "
                "Merge files of different rows."
            )
        for origin in origins:
            self.origins.append(origin)
            self._digests[origin.digest] = path
            self._places[origin.extent.place].append((origin.extent, path))

    def _holder(self, origin: Origin) -> Path | None:
        overlapping = (
            path for extent, path in self._places.get(origin.extent.place, []) if extent.meets(origin.extent)
        )
        return self._digests.get(origin.digest) or next(overlapping, None)


def _require_alike(first: Path, total: ClassMoments, path: Path, moments: ClassMoments) -> None:
    if total.dim != moments.dim:
        raise ShapeError(
            f"{first} and {path} differ in width: {total.dim} and {moments.dim} features. Use one site for all."
        )
    if {_family(label) for label in total} != {_family(label) for label in moments}:
        raise LabelError(f"{first} and {path} differ in their labels: {total.labels} and {moments.labels}.")


def _family(label: Label) -> str:
    return "boolean" if isinstance(label, bool) else "text" if isinstance(label, str) else "number"
