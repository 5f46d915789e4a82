"""`GroupTotal`: the groups of rows that are counted batch by batch, apart from their scatter."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Rows, Vector, row_blocks
from repsurgery.moments.accumulate import Centre, exact_sum
from repsurgery.moments.groups import Groups, groups_of, merge_groups
from repsurgery.moments.merge import gap_between, merge_mean

__all__ = ["GroupTotal"]


@dataclass(frozen=True, slots=True, eq=False)
class GroupTotal:
    """Weight, mean and groups of some rows; ``a + b`` merges the totals of different groups exactly."""

    weight: float
    centre: Centre
    groups: Groups

    @classmethod
    def of(cls, X: Rows, rows: NDArray[np.intp], codes: NDArray[np.intp], w: Vector | None = None) -> "GroupTotal":
        """Return the total of the rows with indices ``rows``; row i belongs to the group ``codes[i]``."""
        first = X[rows[0]].astype(np.float64)
        total = np.zeros(X.shape[1])
        for block in row_blocks(len(rows), X.shape[1]):
            Z = np.subtract(X[rows[block]], first, dtype=np.float64)
            total += Z.sum(axis=0) if w is None else w[rows[block]] @ Z
        weight = float(len(rows)) if w is None else float(w[rows].sum())
        centre = exact_sum(first, total / weight)
        return cls(weight, centre, groups_of(X, rows, codes, w, centre[0]))

    def __add__(self, other: "GroupTotal") -> "GroupTotal":
        gap = gap_between(self.centre, other.centre)
        centre = merge_mean(self.weight, self.centre, other.weight, other.centre)
        groups = merge_groups(self.groups, other.groups, gap, self.weight, other.weight)
        return GroupTotal(self.weight + other.weight, centre, groups)
