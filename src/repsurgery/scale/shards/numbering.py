"""Names of vectors and labels that are matched in sorted order: what their numbers say of it."""

import re
from pathlib import Path

from repsurgery.errors import LabelError

__all__ = ["check_numbers"]


def check_numbers(pairs: list[tuple[Path, Path]]) -> None:
    """Refuse x1 beside z2 where there is an x2 or a z1: the names do not match, or files are missing.

    Looked at are the numbers that tell the files of one side apart: neither the 4 in part-0-of-4 nor the year of dates
    within one year. Sides whose numbers have nothing in common, or where one counts from 0 and the other from 1, are
    numbered differently on purpose, unless one of them is sorted as text and not as numbers; names that differ in more
    than numbers are not a series at all.
    """
    sides = [a for a, _ in pairs], [b for _, b in pairs]
    if not all(map(_is_series, sides)):
        return
    x, z = map(_telling, sides)
    if len(x[0]) != len(z[0]):
        x, z = [key[-1:] for key in x], [key[-1:] for key in z]
        if len(set(x)) < len(x) or len(set(z)) < len(z):
            return  # the last number alone does not tell them apart
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


def _telling(paths: list[Path]) -> list[tuple[int, ...]]:
    """Return, for every path, those of its numbers that are not the same in all of them."""
    numbers = [[int(digits) for digits in re.findall(r"\d+", str(path.with_suffix("")))] for path in paths]
    shared = min(map(len, numbers))
    places = [i for i in range(-shared, 0) if len({found[i] for found in numbers}) > 1]
    return [tuple(found[i] for i in places) for found in numbers]


def _counts_from_0_and_1(x: list[tuple[int, ...]], z: list[tuple[int, ...]]) -> bool:
    from_0, from_1 = ([(i + start,) for i in range(len(x))] for start in (0, 1))
    return (x, z) in ((from_0, from_1), (from_1, from_0))
