"""Pair files of vectors with files of labels: each file once, and numbers in the names that agree."""

import re
import warnings
from pathlib import Path

from repsurgery.errors import DataError, DuplicateWarning, LabelError

__all__ = ["inode", "pair_files", "pair_with_themselves"]

Pair = tuple[Path, Path]


def pair_with_themselves(paths: list[Path]) -> list[Pair]:
    """Return each file once, as vectors and labels."""
    return _without_duplicates([(path, path) for path in paths])


def pair_files(vectors: list[Path], labels: list[Path]) -> list[Pair]:
    """Return each file of vectors once, with its file of labels; the files are paired in the given order."""
    if len(vectors) != len(labels):
        vectors, labels = ([path for path, _ in pair_with_themselves(paths)] for paths in (vectors, labels))
    if len(vectors) != len(labels):
        raise LabelError(
            f"There are {len(vectors)} files of vectors ({_some(vectors)}) and {len(labels)} of labels "
            f"({_some(labels)}); each file of vectors needs its own labels."
        )
    pairs = list(zip(vectors, labels, strict=True))
    _check_numbers(pairs)
    pairs = _without_duplicates(pairs)
    owners: dict[tuple[int, int], Path] = {}
    for file, beside in pairs:
        owner = owners.setdefault(inode(beside), file)
        if owner != file:
            raise LabelError(f"{beside} is listed as the labels of {owner} and of {file}. Give each its own.")
    return pairs


def inode(path: Path) -> tuple[int, int]:
    """Return what identifies a file under all its names, links included."""
    try:
        stat = path.stat()
    except OSError as error:
        raise DataError(f"{path} cannot be opened ({error.strerror}). Check the path.") from error
    return stat.st_dev, stat.st_ino


def _without_duplicates(pairs: list[Pair]) -> list[Pair]:
    """Drop pairs whose vectors are already listed; a link is the file that it points to."""
    unique: dict[tuple[int, int], Pair] = {}
    for vectors, labels in pairs:
        key = inode(vectors)
        if key not in unique:
            unique[key] = vectors.resolve(), labels.resolve()
            continue
        if inode(labels) != inode(unique[key][1]):
            raise LabelError(f"{vectors} is listed with two files of labels: {unique[key][1]} and {labels}. Keep one.")
        warnings.warn(f"{vectors} is listed twice; it is counted once.", DuplicateWarning, stacklevel=4)
    return list(unique.values())


def _some(paths: list[Path]) -> str:
    names = [path.name for path in paths[:3]]
    return ", ".join(names + ["…"] * (len(paths) > 3))


def _check_numbers(pairs: list[Pair]) -> None:
    """Refuse x1 beside z2 where there is an x2 or a z1: the names do not match, or files are missing.

    Only numbers that differ between the files of one side are compared: neither the 4 in part-0-of-4 nor the year of
    dates within one year. Two sides may be numbered differently on purpose: their numbers have nothing in common, or
    one side counts from 0 and the other from 1. The former are still refused where only one side is sorted by number.
    Names that differ in more than numbers are not a series and are not compared.
    """
    sides = [a for a, _ in pairs], [b for _, b in pairs]
    if not all(map(_is_series, sides)):
        return
    x, z = map(_differing_numbers, sides)
    if len(x[0]) != len(z[0]):
        x, z = [key[-1:] for key in x], [key[-1:] for key in z]
        if len(set(x)) < len(x) or len(set(z)) < len(z):
            return  # the last number alone does not identify a file
    if x == z or _counts_from_0_and_1(x, z):
        return
    if not set(x) & set(z) and (x == sorted(x)) == (z == sorted(z)):
        return
    i = next(i for i, (a, b) in enumerate(zip(x, z, strict=True)) if a != b)
    raise LabelError(
        f"{pairs[i][0]} would be read with the labels of {pairs[i][1].name}: names are matched in sorted order. "
        "Write the numbers with leading zeros on both sides; add files that are missing; give those that do belong "
        "together the same numbers (links will do)."
    )


def _is_series(paths: list[Path]) -> bool:
    return len({re.sub(r"\d+", "#", str(path.with_suffix(""))) for path in paths}) == 1


def _differing_numbers(paths: list[Path]) -> list[tuple[int, ...]]:
    """Return, for every path, those of its numbers that are not the same in all paths."""
    numbers = [[int(digits) for digits in re.findall(r"\d+", str(path.with_suffix("")))] for path in paths]
    shared = min(map(len, numbers))
    places = [i for i in range(-shared, 0) if len({row[i] for row in numbers}) > 1]
    return [tuple(row[i] for i in places) for row in numbers]


def _counts_from_0_and_1(x: list[tuple[int, ...]], z: list[tuple[int, ...]]) -> bool:
    from_0, from_1 = ([(i + start,) for i in range(len(x))] for start in (0, 1))
    return (x, z) in ((from_0, from_1), (from_1, from_0))
