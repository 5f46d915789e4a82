"""Which classes are steered to which class: the meaning of ``source`` and ``target``."""

from typing import Any

import numpy as np

from repsurgery.arrays import Label
from repsurgery.errors import LabelError
from repsurgery.moments import ClassMoments

__all__ = ["known_label", "select_classes"]


def select_classes(moments: ClassMoments, source: Any, target: Any) -> tuple[list[Label], Label]:
    """Return the source labels and the target label.

    The target defaults to the last sorted label that is not a source, the sources to every other class.
    """
    sources = None if source is None else [known_label(moments, s) for s in _as_list(source)]
    if target is None:
        free = [label for label in moments.labels if label not in (sources or [])]
        if not free:
            raise LabelError(f"Every class of {moments.labels} is a source. Leave one of them as the target.")
        goal = free[-1]
    else:
        goal = known_label(moments, target)
    if sources is None:
        sources = [label for label in moments.labels if label != goal]
    if not sources:
        raise LabelError("source is empty; name at least one class, or None for all but the target.")
    if goal in sources:
        raise LabelError(f"source and target are both {goal!r}; choose two different classes of {moments.labels}.")
    return list(dict.fromkeys(sources)), goal


def _as_list(source: Any) -> list[Any]:
    return list(source) if isinstance(source, list | tuple | set | np.ndarray) else [source]


def known_label(moments: ClassMoments, label: Any) -> Label:
    """Return ``label`` as the moments spell it, or raise a `LabelError` that lists the classes."""
    plain = label.item() if isinstance(label, np.generic) else label
    for known in moments.labels:
        if known == plain and isinstance(known, str) == isinstance(plain, str):
            return known
    raise LabelError(f"There is no class {plain!r} in the labels; the classes are {moments.labels}.")
