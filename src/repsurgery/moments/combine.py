"""Moments of the rows of two moments together, and of the rows that remain when some are removed."""

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from repsurgery.errors import DuplicateWarning, SurgeryError
from repsurgery.moments.accumulate import underflowed
from repsurgery.moments.checks import coarsest, require_comparable_weights, require_same_width
from repsurgery.moments.groups import Groups, merge_groups, remove_groups
from repsurgery.moments.merge import (
    REMOVAL_TOLERANCE,
    downdate_factor,
    downdate_scatter,
    factor_of_scatter,
    gap_between,
    merge_factors,
    merge_mean,
    merge_scatter,
    remove_mean,
)

if TYPE_CHECKING:
    from repsurgery.moments.moments import Moments

__all__ = ["added", "removed", "warn_of_repetition"]

ROUNDING = 8 * float(np.finfo(np.float64).eps)
"""Means of equal rows differ by less, relative to their size."""


def added(a: "Moments", b: "Moments") -> "Moments":
    """Return the moments of the rows of both."""
    require_same_width(a, b)
    if not (a.count and b.count):
        return a if a.count else b
    require_comparable_weights(*sorted((float(a.weight), float(b.weight))))
    count, weight = a.count + b.count, a.weight + b.weight
    mean, residue = merge_mean(a.weight, a.centre, b.weight, b.centre)
    gap, weights = gap_between(a.centre, b.centre), (a.weight, b.weight)
    dense = factor = None
    if a.factor is not None and b.factor is not None and count < a.dim:
        factor = merge_factors(a.factor, b.factor, gap, *weights)
        squares = np.square(factor)
    else:
        dense = merge_scatter(a.scatter, b.scatter, gap, *weights)
        squares = np.diagonal(dense)
    if not squares.any() and (np.abs(gap) > ROUNDING * np.abs(mean)).any():
        raise underflowed()
    both = _groups(a, b)
    groups = merge_groups(*both, gap, *weights) if both else None
    sketch = a.sketch + b.sketch if a.sketch and b.sketch else None
    ledger = a.ledger + b.ledger if a.ledger and b.ledger else None
    return type(a)(count, weight, mean, dense, factor, *coarsest(a, b), residue, groups, sketch, ledger)


def warn_of_repetition(a: "Moments", b: "Moments", *, of: str = "") -> None:
    """Warn where a part of ``b`` is among those of ``a``, so that its rows count twice; ``of`` names the class."""
    shared = a.ledger.shared(b.ledger) if a.ledger and b.ledger else ()
    if shared:
        warnings.warn(
            f"The part {shared[0]}{of} is already among the moments to which it is added, so that its rows are counted "
            "twice. Add each part once, unless these are different rows of equal content.",
            DuplicateWarning,
            stacklevel=3,
        )


def removed(a: "Moments", b: "Moments") -> "Moments":
    """Return the moments of the rows of ``a`` without those of ``b``, which were added before."""
    require_same_width(a, b)
    if b.count == 0:
        return a
    count, weight = a.count - b.count, a.weight - b.weight
    if count == 0 and abs(weight) <= 1e-9 * a.weight:
        return _emptied(a, b)
    if count <= 0 or weight <= 0:
        raise SurgeryError(
            f"Cannot remove {b.count} rows of weight {b.weight:g} from {a.count} of weight {a.weight:g}. Subtract only "
            "moments of rows that were added before."
        )
    mean, residue = remove_mean(a.weight, a.centre, b.weight, b.centre)
    gap, weights = gap_between(b.centre, (mean, residue)), (weight, b.weight)
    share = a.weight / weight
    # the means count √share times, and the weight that is left has lost a share of its digits
    rounding = REMOVAL_TOLERANCE[coarsest(a, b)[1]] * np.sqrt(share) + 4 * np.finfo(np.float64).eps * share
    former = np.maximum(a.variance * a.weight, 0.0)
    if a.sketch is not None:  # it remembers what was added and removed earlier
        former = np.maximum(former, a.sketch.bound)
    dense = factor = None
    if a.factor is not None and b.factor is not None:
        factor = downdate_factor(a.factor, b.factor, gap, *weights, rows=count - 1, former=former, rounding=rounding)
    else:
        dense = downdate_scatter(a.scatter, b.scatter, gap, *weights, former=former, rounding=rounding)
        if dense is not None and count < a.dim:
            factor, dense = factor_of_scatter(dense, former, rows=count - 1), None
    if dense is None and factor is None:
        raise SurgeryError(
            "Removing these rows would leave a negative variance, so they were not all among the rows added. "
            "Subtract only moments of rows that were added before, with the same weights."
        )
    sketch = a.sketch - b.sketch if a.sketch and b.sketch else None
    ledger = a.ledger - b.ledger if a.ledger and b.ledger else None
    left = type(a)(count, weight, mean, dense, factor, *coarsest(a, b), residue, None, sketch, ledger)
    both = _groups(a, b)
    if both is None:
        return left
    groups = remove_groups(*both, gap, *weights)
    # the sketch keeps its own count of the groups
    return replace(left, groups=None if groups.are_single(weight) else groups)


def _groups(a: "Moments", b: "Moments") -> tuple[Groups, Groups] | None:
    return (a.all_groups(), b.all_groups()) if a.groups or b.groups else None


def _emptied(a: "Moments", b: "Moments") -> "Moments":
    scale = np.sqrt(a.trace) + np.abs(a.mean).max(initial=0.0)
    if np.abs(a.mean - b.mean).max(initial=0.0) > 1e-9 * scale:
        raise SurgeryError(
            "Cannot remove all rows, because the means differ: the removed rows are not the rows that were added. "
            "Subtract only moments of rows that were added before."
        )
    return a.empty(a.dim)
