"""`merge_files`: moments from several machines into one, and no rows twice."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from repsurgery.arrays import Label
from repsurgery.distributed.parts import read_part, write_moments
from repsurgery.errors import DataError, LabelError, ShapeError
from repsurgery.files import digest_of
from repsurgery.moments import ClassMoments
from repsurgery.moments.by_class import to_contents

__all__ = ["merge_files"]


def merge_files(files: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> ClassMoments:
    """Add up the moments in ``files``, write the sum to ``out`` and return it.

    One file is in memory at a time, besides the sum.

    Raises
    ------
    DataError
        The same file twice, a copy of it, or two files that counted the same shard.
    ShapeError, LabelError
        Files of different widths, or with labels of different kinds.

    Guarantees
    ----------
    Nothing is counted twice (test_merging_refuses_to_count_twice).
    """
    paths = [Path(file) for file in files]
    if len(paths) < 2:
        raise DataError(f"There is nothing to merge: {len(paths)} files were given, at least two are needed.")
    twice = [path for path, count in Counter(path.resolve() for path in paths).items() if count > 1]
    if twice:
        raise DataError(f"{twice[0]} is listed twice; its rows would be counted twice. List it once.")
    total, shards, seen = ClassMoments(), dict[str, Path](), dict[str, Path]()
    for path in paths:
        moments, counted = read_part(path)
        _require_new(path, moments, counted, shards, seen)
        if len(total):
            _require_alike(paths[0], total, path, moments)
        total += moments
    write_moments(Path(out), total, list(shards))
    return total


def _require_new(
    path: Path, moments: ClassMoments, counted: list[str], shards: dict[str, Path], seen: dict[str, Path]
) -> None:
    held = to_contents(moments)
    digest = digest_of(held.arrays, held.header)
    if digest in seen:
        raise DataError(f"{path} holds the same moments as {seen[digest]}; its rows would be counted twice.")
    seen[digest] = path
    shared = [shard for shard in counted if shard in shards]
    if shared:
        raise DataError(
            f"{path} and {shards[shared[0]]} have counted {len(shared)} shards both; their rows would be counted "
            "twice. Merge files of different shards."
        )
    shards.update(dict.fromkeys(counted, path))


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
