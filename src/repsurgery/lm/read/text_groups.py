"""The groups of texts while they are read: a text's tokens, or the texts that the caller says belong together."""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import ShapeError
from repsurgery.moments.accumulate import Centre
from repsurgery.moments.group_totals import GroupTotal
from repsurgery.moments.groups import Groups
from repsurgery.moments.merge import merge_mean

__all__ = ["TextGroups"]

_Place = tuple[str, int]
"""A site and the number of a class."""


class TextGroups:
    """Weight, mean and groups of the states read so far, per site and class.

    A group is open until the last of its texts in a class has been read; only open groups keep a mean (d,) of their
    own. Without ``groups=`` each text is its own group, so that none is open between batches.

    Parameters
    ----------
    sites : list of str
    classes, groups : (n,) integers
        The class and the group of each text.
    """

    def __init__(self, sites: list[str], classes: NDArray[np.intp], groups: NDArray[np.intp]) -> None:
        self._sites = sites
        self._of_text = list(zip(classes.tolist(), groups.tolist(), strict=True))
        self._unread = Counter(self._of_text)
        self._closed: dict[_Place, GroupTotal] = {}
        self._open: dict[_Place, dict[int, GroupTotal]] = {}

    def take(self, index: Sequence[int], sizes: Sequence[int], states: Mapping[str, NDArray[np.float32]]) -> None:
        """Add the texts at ``index``, which have ``sizes`` rows each, in order, in the states of each site."""
        ends = np.cumsum(sizes)[:-1]
        for site, rows in states.items():
            for i, part in zip(index, np.split(rows, ends), strict=True):
                code, group = self._of_text[i]
                total = _one_group(part)
                open_groups = self._open.setdefault((site, code), {})
                open_groups[group] = _joined(open_groups[group], total) if group in open_groups else total
        self._unread.subtract(self._of_text[i] for i in index)
        for code, group in {self._of_text[i] for i in index}:
            if not self._unread[code, group]:
                self._close(code, group)

    def _close(self, code: int, group: int) -> None:
        for site in self._sites:
            total, place = self._open[site, code].pop(group), (site, code)
            self._closed[place] = self._closed[place] + total if place in self._closed else total

    def groups_at(self, site: str, code: int) -> Groups:
        """Return the groups of all texts of a class that were read so far."""
        place = site, code
        totals = [*([self._closed[place]] if place in self._closed else []), *self._open.get(place, {}).values()]
        return sum(totals[1:], totals[0]).groups

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return everything that `restored` needs."""
        arrays = {}
        for i, site in enumerate(self._sites):
            for code in sorted({code for code, _ in self._of_text}):
                closed, open_groups = self._closed.get((site, code)), self._open.get((site, code), {})
                if closed is not None:
                    arrays[f"closed.{i}.{code}.centre"] = np.array(closed.centre)
                    g = closed.groups
                    arrays[f"closed.{i}.{code}.numbers"] = np.array([closed.weight, g.count, g.squares, g.between])
                if open_groups:
                    weights = [(group, total.weight) for group, total in open_groups.items()]
                    arrays[f"open.{i}.{code}.centres"] = np.array([total.centre for total in open_groups.values()])
                    arrays[f"open.{i}.{code}.weights"] = np.array(weights, dtype=np.float64)
        return arrays

    def restored(self, done: NDArray[np.bool_], arrays: Mapping[str, NDArray[np.float64]]) -> "TextGroups":
        """Return the state after the texts marked in ``done`` (n,), whose groups are in ``arrays``."""
        state = copy.copy(self)
        state._unread = Counter(self._of_text)
        state._unread.subtract(self._of_text[i] for i in np.flatnonzero(done))
        state._closed, state._open = {}, {}
        for name in arrays:
            kind, i, code, part = name.split(".")
            place, stem = (self._sites[int(i)], int(code)), f"{kind}.{i}.{code}"
            if part == "numbers":
                weight, *numbers = arrays[name].tolist()
                mean, residue = arrays[f"{stem}.centre"]
                state._closed[place] = GroupTotal(weight, (mean, residue), Groups(*numbers))
            elif part == "weights":
                pairs = zip(arrays[name].tolist(), arrays[f"{stem}.centres"], strict=True)
                state._open[place] = {int(g): _group(w, (mean, residue)) for (g, w), (mean, residue) in pairs}
        if set(self._places_read(done)) != {*state._closed, *state._open}:
            raise ShapeError("It holds the groups of other sites or classes than those that were read.")
        return state

    def _places_read(self, done: NDArray[np.bool_]) -> list[_Place]:
        codes = {self._of_text[i][0] for i in np.flatnonzero(done)}
        return [(site, code) for site in self._sites for code in codes]


def _one_group(rows: NDArray[np.float32]) -> GroupTotal:
    mean = rows.mean(axis=0, dtype=np.float64)
    return _group(float(len(rows)), (mean, np.zeros_like(mean)))


def _group(weight: float, centre: Centre) -> GroupTotal:
    return GroupTotal(weight, centre, Groups(1, weight**2, 0.0))


def _joined(a: GroupTotal, b: GroupTotal) -> GroupTotal:
    """Return two parts of one group as one group."""
    return _group(a.weight + b.weight, merge_mean(a.weight, a.centre, b.weight, b.centre))
