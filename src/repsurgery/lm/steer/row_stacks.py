"""Rows of a batch that are steered alike, and elementwise maps of several rows as one multiply-add."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from repsurgery.lm.steer.positions import Forward, Positions
from repsurgery.lm.steer.row_steering import RowSteering
from repsurgery.lm.steer.rows import RowPart
from repsurgery.lm.steer.torch_maps import compute_dtype

__all__ = ["Group", "Rows", "Stack", "levels_of", "picked"]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Rows with the same steering.

    Attributes
    ----------
    rows : (k,) tensor
        Their numbers in the batch.
    positions : str
    steering : RowSteering
    """

    rows: torch.Tensor
    positions: Positions
    steering: RowSteering

    def moved(self, X: torch.Tensor, owner: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Return steered states (n, d), and how many a gate assigned to a map; ``owner`` (n,) indexes ``rows``."""
        return self.steering.counted(X)

    def apart(self) -> "Iterator[Group]":
        """Yield every row on its own."""
        for row in self.rows:
            yield Group(row[None], self.positions, self.steering)


class Stack:
    """Rows with several steerings x ↦ scale ∘ x + offset without a gate, which one multiply-add applies to all of them.

    Parameters
    ----------
    groups : sequence of Group
        At the same positions, each with an elementwise steering.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self.rows = torch.cat([group.rows for group in groups])
        self.positions = groups[0].positions
        self._groups = groups
        self._which = torch.cat([torch.full_like(group.rows, i) for i, group in enumerate(groups)])
        tables = [group.steering.elementwise for group in groups]
        self._scale, self._offset = (torch.stack([t[i] for t in tables if t is not None]) for i in (0, 1))

    def moved(self, X: torch.Tensor, owner: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Return steered states (n, d), and their number."""
        h = X.to(compute_dtype(X.dtype))
        which = self._which.to(X.device)[owner]
        scale, offset = (table.to(device=h.device, dtype=h.dtype)[which] for table in (self._scale, self._offset))
        Y = torch.addcmul(offset, h, scale)
        limit = torch.finfo(X.dtype).max
        if not bool((Y.detach().abs() <= limit).all()):
            # the steering that fails says why
            for i, group in enumerate(self._groups):
                group.steering.counted(X[which == i])
        return Y.to(X.dtype), len(X)

    def apart(self) -> Iterator[Group]:
        """Yield every row on its own."""
        for group in self._groups:
            yield from group.apart()


Rows: TypeAlias = Group | Stack


def levels_of(items: Sequence[tuple[int, RowPart]]) -> list[list[Rows]]:
    """Return what is applied at one site, in order, from the parts of each row in their order.

    Level j holds the j-th part of every row that has one; within a level every row occurs once.
    """
    levels: list[dict[str, tuple[RowPart, list[int]]]] = []
    taken: dict[int, int] = {}
    for row, part in items:
        number = taken[row] = taken.get(row, -1) + 1
        if number == len(levels):
            levels.append({})
        levels[number].setdefault(part.key, (part, []))[1].append(row)
    return [
        _stacked([Group(torch.tensor(rows), p.positions, p.steering) for p, rows in one.values()]) for one in levels
    ]


def _stacked(groups: Sequence[Group]) -> list[Rows]:
    elementwise: dict[Positions, list[Group]] = {}
    result: list[Rows] = []
    for group in groups:
        if group.steering.elementwise is None:
            result.append(group)
        else:
            elementwise.setdefault(group.positions, []).append(group)
    return result + [same[0] if len(same) == 1 else Stack(same) for same in elementwise.values()]


def picked(group: Rows, forward: Forward, copies: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return which states of a pass (batch × length, d) ``group`` steers, and the index of the row of each.

    Parameters
    ----------
    copies : int
        Rows of the pass for each row of the batch, next to each other.

    Returns
    -------
    (n,) tensor, (n,) tensor, or None
        Indices of states, and of ``group.rows``; None where no position is selected.
    """
    selected = forward.selected(group.positions)
    if selected is False:
        return None
    k, length = len(group.rows), forward.length
    rows = (group.rows[:, None] * copies + torch.arange(copies)).reshape(-1)
    index = rows[:, None] * length + torch.arange(length)
    owner = torch.arange(k).repeat_interleave(copies)[:, None].expand(-1, length)
    if selected is True:
        return index.reshape(-1), owner.reshape(-1)
    chosen = selected.cpu()[rows]
    return index[chosen], owner[chosen]
