"""Groups of rows that are not independent, such as the tokens of one text, and the number of rows they are worth.

Three numbers describe the groups of a set of rows, and merge as a trace does. With G groups of sizes m_g and means x̄_g:

* SSB = Σ m_g ‖x̄_g − x̄‖², MSB = SSB / (G − 1), MSW = (tr scatter − SSB) / (n − G),
* m₀ = (n − Σ m_g² / n) / (G − 1), ρ = (MSB − MSW) / (MSB + (m₀ − 1) MSW), clipped to [0, 1],
* n_eff = n / (1 + (Σ m_g² / n − 1) ρ).

ρ is the intraclass correlation of a one-way analysis of variance, pooled over all coordinates, and n / n_eff is the
design effect. Rows of weight w count w times: n and m_g are sums of weights.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Rows, Vector, row_blocks
from repsurgery.cards import Card, Shown
from repsurgery.errors import DataError, SurgeryError
from repsurgery.moments.shown import groups_card

__all__ = ["Groups", "groups_of", "merge_groups", "remove_groups"]

SLACK = 1e-9
"""Relative rounding of sums of squared weights, with a wide margin."""


@dataclass(frozen=True, slots=True)
class Groups(Shown):
    """What is known of the groups of a set of rows.

    Attributes
    ----------
    count : float
        The number of groups G; a whole number unless weighted rows without groups were merged in.
    squares : float
        Σ m_g², where m_g is the number of rows (the weight) of a group.
    between : float
        SSB = Σ m_g ‖x̄_g − x̄‖², the part of the scatter's trace that lies between groups.
    """

    count: float
    squares: float
    between: float

    @classmethod
    def alone(cls, n: float, spread: float) -> "Groups":
        """Return the groups of n rows of which each is its own group; ``spread`` is the trace of their scatter."""
        return cls(n, n, spread)

    def _card(self) -> Card:
        return groups_card(self)

    def are_single(self, n: float) -> bool:
        """Return whether each of n rows is its own group."""
        return self.count == self.squares == n

    def correlation(self, n: float, spread: float) -> float:
        """Return the intraclass correlation ρ of n rows whose scatter has the trace ``spread``."""
        if self.count <= 1 or n <= self.count:
            return 1.0  # nothing to compare; for rows of weight 1, either G = 1 or every row is its own group
        between = min(self.between, spread)
        msb, msw = between / (self.count - 1), (spread - between) / (n - self.count)
        m0 = (n - self.squares / n) / (self.count - 1)
        scale = msb + (m0 - 1) * msw
        return min(max((msb - msw) / scale, 0.0), 1.0) if scale > 0 else 0.0

    def effective_count(self, n: float, spread: float) -> float:
        """Return n_eff of n rows whose scatter has the trace ``spread``."""
        if self.count <= 1:
            return min(1.0, n)
        excess = max(self.squares / n - 1.0, 0.0)
        return n / (1.0 + excess * self.correlation(n, spread))

    def require_possible(self, n: float) -> None:
        """Raise `DataError` where no groups of n rows can have these numbers."""
        numbers = (self.count, self.squares, self.between)
        if not all(isinstance(v, float | int) and not isinstance(v, bool) and np.isfinite(v) for v in numbers):
            raise DataError(f"Groups {numbers} must be three finite numbers. Compute the moments again from rows.")
        # Σ m_g² lies between n² / G (equal sizes) and n² (one group)
        least, most = n**2 / self.count * (1 - SLACK) if self.count > 0 else np.inf, n**2 * (1 + SLACK)
        if self.between < 0 or not least <= self.squares <= most:
            raise DataError(
                f"Groups {numbers} cannot describe groups of {n:g} rows: the sum of squared sizes must lie between "
                "n² / G and n². Compute the moments again from rows, and remove only whole groups."
            )


def groups_of(X: Rows, rows: NDArray[np.intp], codes: NDArray[np.intp], w: Vector | None, mean: Vector) -> Groups:
    """Return the groups of the rows of ``X`` with indices ``rows``; row i belongs to the group ``codes[i]``.

    ``mean`` is the mean of the rows. Memory above the input is one block of rows and a few numbers per row.
    """
    order = rows[np.argsort(codes[rows], kind="stable")]
    ordered = codes[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    sizes = np.add.reduceat(np.ones(len(order)) if w is None else w[order], starts)
    between, open_sum = 0.0, np.zeros(X.shape[1])
    for block in row_blocks(len(order), X.shape[1]):
        Z = np.subtract(X[order[block]], mean, dtype=np.float64)
        if w is not None:
            Z *= w[order[block], None]
        # the first sum may belong to a group that the previous block began, the last one to a group still open
        first = int(np.searchsorted(starts, block.start, side="right")) - 1
        after = int(np.searchsorted(starts, block.stop, side="left"))
        cuts = np.maximum(starts[first:after] - block.start, 0)
        sums = np.add.reduceat(Z, cuts, axis=0)
        if starts[first] < block.start:
            sums[0] += open_sum
        elif first:
            between += float(open_sum @ open_sum) / float(sizes[first - 1])
        between += float((np.square(sums[:-1]).sum(axis=1) / sizes[first : after - 1]).sum())
        open_sum = sums[-1]
    between += float(open_sum @ open_sum) / float(sizes[-1])
    return Groups(len(starts), float(np.square(sizes).sum()), between)


def merge_groups(a: Groups, b: Groups, gap: Vector, wa: float, wb: float) -> Groups:
    """Return the groups of both sets of rows, none of which is in both; ``gap`` is the difference of the means."""
    moved = wa * wb / (wa + wb) * float(gap @ gap)
    return Groups(a.count + b.count, a.squares + b.squares, a.between + b.between + moved)


def remove_groups(a: Groups, b: Groups, gap: Vector, w: float, wb: float) -> Groups:
    """Return the groups of the remaining rows, of weight ``w``, when b is removed from a.

    ``gap`` is the difference of the means of the remaining rows and of b.
    """
    moved = w * wb / (w + wb) * float(gap @ gap)
    left = Groups(a.count - b.count, a.squares - b.squares, max(a.between - b.between - moved, 0.0))
    try:
        left.require_possible(w)
    except DataError as error:
        raise SurgeryError(
            f"Removing {b.count:g} groups from {a.count:g} leaves {w:g} rows in {left.count:g} groups, so they were "
            "not added as these groups. Remove whole groups, with the groups by which they were added."
        ) from error
    return left
