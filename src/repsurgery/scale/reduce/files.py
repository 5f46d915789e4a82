"""`merge_files`: moments from several machines into one, and no rows twice."""

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
        The same file twice, a copy of it, or two files that counted the same shard, a copy of it, or pieces of one
        file that overlap. What cannot be seen: pieces of a file that was touched, copied or streamed with its folder
        and then cut differently, and files written by ``ClassMoments.save``, which keep no origins.
    ShapeError, LabelError
        Files of different widths, or with labels of different kinds.
    OutputError
        ``out`` is one of the files, or cannot be written; before any of them is read.

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
    total, seen = ClassMoments(), _Seen()
    for path in paths:
        moments, origins = read_part(path)
        seen.add(path, moments, origins)
        if len(total):
            _require_alike(paths[0], total, path, moments)
        total += moments
    write_moments(Path(out), total, seen.origins)
    return total


class _Seen:
    """What was merged so far: whole files by their moments, shards by their moments and by their extents."""

    def __init__(self) -> None:
        self.origins: list[Origin] = []
        self._files: dict[str, Path] = {}
        self._digests: dict[str, Path] = {}
        self._places: dict[str, list[tuple[Extent, Path]]] = defaultdict(list)

    def add(self, path: Path, moments: ClassMoments, origins: list[Origin]) -> None:
        """Take a file in, or refuse rows that are there already."""
        held = to_contents(moments)
        digest = digest_of(held.arrays, held.header)
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
        meeting = (path for extent, path in self._places.get(origin.extent.place, []) if extent.meets(origin.extent))
        return self._digests.get(origin.digest) or next(meeting, None)


def _require_alike(first: Path, total: ClassMoments, path: Path, moments: ClassMoments) -> None:
    if total.dim != moments.dim:
        raise ShapeError(
            f"{first} and {path} differ in width: {total.dim} and {moments.dim} features. Use one site for all."
        )
    have, got = ({_family(label) for label in each} for each in (total, moments))
    if have != got:
        raise LabelError(f"{first} and {path} differ in their labels: {total.labels} and {moments.labels}.")


def _family(label: Label) -> str:
    return "boolean" if isinstance(label, bool) else "text" if isinstance(label, str) else "number"
