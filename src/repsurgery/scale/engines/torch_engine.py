"""`all_reduce_moments`: the sum of the moments of all ranks of a ``torchrun`` job, by one all-reduce."""

import warnings
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from repsurgery.arrays import Label, Matrix, Vector
from repsurgery.errors import DuplicateWarning, EngineError, MissingExtraError, ShapeError
from repsurgery.moments import ClassMoments, Moments
from repsurgery.moments.combine import added
from repsurgery.moments.groups import Groups
from repsurgery.moments.ledger import Part
from repsurgery.moments.merge import gap_between, moved

__all__ = ["all_reduce_moments"]


_Summary = dict[Label, Moments]
"""Moments without their scatter, by class."""


def all_reduce_moments(moments: ClassMoments, *, group: Any = None) -> ClassMoments:
    """Return, on every rank, the moments of the rows of all ranks.

    Ranks first exchange counts and means, which are small, and compute the overall mean from them. The scatters about
    that mean are then summed by one all-reduce of k d² float64 numbers, without cancellation.

    Parameters
    ----------
    moments : ClassMoments
        Moments of this rank's rows; ranks may hold different classes, or none. Every rank of the group calls the
        function, once per site, in the same order.
    group : torch.distributed.ProcessGroup or None

    Guarantees
    ----------
    Equal to the moments of all rows at once (test_torchrun_gives_the_moments_of_one_process).
    """
    try:
        from torch import distributed
    except ImportError as error:
        raise MissingExtraError("all_reduce_moments needs PyTorch: pip install 'repsurgery[lm]'") from error
    if not (distributed.is_available() and distributed.is_initialized()):
        raise EngineError(
            "There is no process group: start the script with torchrun and call torch.distributed.init_process_group."
        )
    ranks = _gathered(distributed, _summary(moments), group)
    _require_one_width(ranks)
    everywhere = sorted({label for rank in ranks for label in rank})
    few = [label for label in everywhere if _count(ranks, label) < _width(ranks)]
    dense = [label for label in everywhere if label not in few]
    total: dict[Label, Moments] = {}
    if few:
        # fewer rows than dimensions on all ranks together: the factors are small and stay factors
        parts = _gathered(distributed, {label: moments[label] for label in few if label in moments}, group)
        for label in few:
            total[label] = reduce(added, [part[label] for part in parts if label in part])
    if dense:
        total.update(_dense(distributed, moments, ranks, dense, group))
    whole = ClassMoments(total)
    whole.check_sketch()
    _warn_of_repetition(ranks)
    return whole


def _warn_of_repetition(ranks: list[_Summary]) -> None:
    """Warn where two ranks counted the same rows."""
    holders: dict[Part, int] = {}
    for rank, summary in enumerate(ranks):
        for label, m in summary.items():
            for part in m.ledger.parts if m.ledger is not None else ():
                other = holders.setdefault(part, rank)
                if other != rank:
                    warnings.warn(
                        f"Ranks {other} and {rank} counted the same rows of class {label!r}: the part {part}. They "
                        "count twice. Give each rank its own share of the data.",
                        DuplicateWarning,
                        stacklevel=3,
                    )


def _summary(moments: ClassMoments) -> _Summary:
    # rows without groups are stated as groups of one row each, because their spread is not in the summary
    return {
        label: replace(m, dense=None, factor=np.zeros((0, m.dim)), groups=m.all_groups())
        for label, m in moments.items()
    }


def _gathered(distributed: Any, value: _Summary, group: Any) -> list[_Summary]:
    gathered: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(gathered, value, group=group)
    return gathered


def _require_one_width(ranks: list[_Summary]) -> None:
    widths = {len(m.mean) for rank in ranks for m in rank.values()}
    if len(widths) != 1:
        problem = f"vectors of different widths: {sorted(widths)}" if widths else "no rows at all"
        raise ShapeError(f"The ranks hold {problem}. Use the same site on all ranks.")


def _width(ranks: list[_Summary]) -> int:
    return next(len(m.mean) for rank in ranks for m in rank.values())


def _count(ranks: list[_Summary], label: Label) -> int:
    return sum(rank[label].count for rank in ranks if label in rank)


def _dense(
    distributed: Any, moments: ClassMoments, ranks: list[_Summary], labels: list[Label], group: Any
) -> dict[Label, Moments]:
    import torch

    whole = {label: _facts([rank[label] for rank in ranks if label in rank]) for label in labels}
    d = _width(ranks)
    stack = np.zeros((len(labels), d, d))
    for S, label in zip(stack, labels, strict=True):
        if label in moments:
            S[:] = _about(moments[label], whole[label])
    on_gpu = distributed.get_backend(group) == "nccl"
    sums = torch.from_numpy(stack)
    sums = sums.cuda() if on_gpu else sums
    distributed.all_reduce(sums, group=group)
    stack = sums.cpu().numpy()
    return {label: replace(whole[label], dense=S, factor=None) for label, S in zip(labels, stack, strict=True)}


def _facts(parts: list[Moments]) -> Moments:
    """Return all of the parts together but their scatter; the mean is computed relative to the heaviest part."""
    weight = sum(m.weight for m in parts)
    pivot = max(parts, key=lambda m: m.weight).centre
    step: Vector = sum(gap_between(pivot, m.centre) * (m.weight / weight) for m in parts)  # type: ignore[assignment]
    mean, residue = moved(pivot, step)
    exact = all(m.precision == "float64" for m in parts)
    facts = Moments(
        sum(m.count for m in parts),
        weight,
        mean,
        None,
        np.zeros((0, len(mean))),  # the scatter is filled in after the all-reduce
        "float64" if all(m.dtype == "float64" for m in parts) else "float32",
        "float64" if exact else "float32-products",
        residue,
    )
    sketches, ledgers = [m.sketch for m in parts if m.sketch], [m.ledger for m in parts if m.ledger]
    sketch = reduce(add, sketches) if len(sketches) == len(parts) else None
    ledger = reduce(add, ledgers) if len(ledgers) == len(parts) else None
    return replace(facts.with_groups(_groups(parts, facts)), sketch=sketch, ledger=ledger)


def _groups(parts: list[Moments], whole: Moments) -> Groups:
    """Return the groups of all parts together: about the overall mean, the spread between them adds up."""
    groups = [m.all_groups() for m in parts]
    between = sum(
        g.between + m.weight * float(np.square(gap_between(whole.centre, m.centre)).sum())
        for g, m in zip(groups, parts, strict=True)
    )
    return Groups(sum(g.count for g in groups), sum(g.squares for g in groups), between)


def _about(m: Moments, whole: Moments) -> Matrix:
    gap = gap_between(whole.centre, m.centre)
    return m.scatter + m.weight * np.outer(gap, gap)
