"""Steer every row of a batch in its own way; rows that are steered alike are steered together."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal, get_args

import torch
from torch import nn

from repsurgery.errors import NonFiniteError, ParameterError, PassError, ShapeError
from repsurgery.lm.batching.batches import own_order
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.lm.steer.block import Block
from repsurgery.lm.steer.forward_context import ForwardContext
from repsurgery.lm.steer.hooks import Visit, attach
from repsurgery.lm.steer.opening import opened
from repsurgery.lm.steer.passes import Call
from repsurgery.lm.steer.positions import Forward
from repsurgery.lm.steer.row_stacks import Rows, levels_of, picked
from repsurgery.lm.steer.rows import RowPart, RowPlan, prepare_row
from repsurgery.lm.steer.turns import turns_of_call

__all__ = ["SteeredRows", "row_block", "steer_rows"]

Failures = Literal["raise", "note"]


@contextmanager
def steer_rows(model: nn.Module, rows: Sequence[Any], *, failures: Failures = "raise") -> Iterator["SteeredRows"]:
    """Steer each row of a batch by its own steering while the block runs.

    Parameters
    ----------
    model : nn.Module
        As for `steer`.
    rows : sequence
        One entry for each row of the batches that the model reads: None, a steering, a mapping of site to steering, a
        `Placement`, a `Choice` with strength and positions, or a sequence of these, which are composed in this order.
        Where ``generate`` expands a batch (``num_return_sequences``, beams), an entry serves all copies of its row.
    failures : {"raise", "note"}
        What happens where a steering gives NaN or a value beyond the dtype: an error, or a note in
        `SteeredRows.failures`. Such a row has none of its steerings at that site, and the other rows are not affected.

    Yields
    ------
    SteeredRows
        Its `SteeredRows.assign` gives the rows of later passes.

    Raises
    ------
    ShapeError
        In a pass whose batch does not have one row for each entry.
    ParameterError
        Where a function of this package reads texts with ``model`` inside the block, since it orders its batches
        itself: pass a list of steerings to `generate`, or call the model.

    Guarantees
    ----------
    Each row of a mixed batch has the states that it has on its own (test_a_mixed_batch_equals_its_rows).
    Entries without steering leave their rows bit for bit (test_rows_without_steering_are_untouched).
    Several steerings of a row act in their order (test_steerings_of_a_row_act_in_their_order).
    Rows that are steered alike are one call (test_equal_rows_are_steered_together).
    """
    if failures not in get_args(Failures):
        raise ParameterError(f"failures is {failures!r}; it must be one of {list(get_args(Failures))}.")
    inner = unwrapped(model)
    if not isinstance(rows, Sequence) or isinstance(rows, (str, bytes)):
        raise ParameterError(
            f"steer_rows got {type(rows).__name__} for rows; it takes a list with one entry for each row of the batch, "
            "None where a row is not steered."
        )
    plans = [prepare_row(inner, row) for row in rows]
    note = "rows: " + " | ".join(plan.key for plan in plans)
    with row_block(model, note=note, failures=failures) as steered, own_order(inner):
        steered.assign(plans)
        yield steered


@contextmanager
def row_block(
    model: nn.Module, *, note: str = "rows", failures: Failures = "raise", in_steps: bool = False
) -> Iterator["SteeredRows"]:
    """Open a block without rows, for code that assigns the rows of each pass itself.

    Parameters
    ----------
    note : str
        See `Block`.
    failures : {"raise", "note"}
        See `steer_rows`.
    in_steps : bool
        Steer only the passes inside `SteeredRows.step_of`.
    """
    block = Block(note, [], everywhere=False)
    with opened(model, block) as context:
        yield SteeredRows(context, block, tolerant=failures == "note", in_steps=in_steps)


class SteeredRows:
    """The rows of an open `steer_rows` block.

    Attributes
    ----------
    plans : tuple of RowPlan
        How each row is steered.
    failures : mapping of int to str
        With ``failures="note"``, the rows whose steering failed since the last `assign`, and why.
    """

    def __init__(self, context: ForwardContext, block: Block, *, tolerant: bool, in_steps: bool) -> None:
        self.plans: tuple[RowPlan, ...] = ()
        self._context, self._block, self._tolerant = context, block, tolerant
        self._in_steps, self._stepping = in_steps, False
        self._levels: dict[str, list[list[Rows]]] = {}
        self._hooked: set[str] = set()
        self._failures: dict[int, str] = {}

    @property
    def visits(self) -> Mapping[str, int]:
        """How many passes went through each site."""
        return self._block.visits

    @property
    def steered_share(self) -> Mapping[str, float]:
        """The share of the selected positions at each site that a gate assigned to a map."""
        return self._block.steered_share

    @property
    def failures(self) -> Mapping[int, str]:
        """The rows whose steering failed since the last `assign`, and why."""
        return MappingProxyType(self._failures)

    def assign(self, plans: Sequence[RowPlan]) -> None:
        """Set the rows of the passes that follow."""
        self._failures = {}
        if self.plans == tuple(plans):
            return
        self.plans = tuple(plans)
        parts: dict[str, list[tuple[int, RowPart]]] = {}
        for row, plan in enumerate(self.plans):
            for part in plan.parts:
                parts.setdefault(_place(part), []).append((row, part))
        self._levels = {place: levels_of(items) for place, items in parts.items()}
        for place, items in parts.items():
            if place not in self._hooked:
                self._hook(place, items[0][1])

    def excuse(self) -> None:
        """Accept that no pass is made through some sites."""
        self._block.excuse()

    @contextmanager
    def step_of(self, *, prompt: int) -> Iterator[None]:
        """Treat passes in the block as those of one ``generate`` call whose prompt has this padded length.

        With 0, every token of the pass was generated. `prompt_turns` states the turns of the assistant in the prompt.
        """
        self._stepping = True
        try:
            with self._context.generating(Call(prompt, turns=turns_of_call())):
                yield
        finally:
            self._stepping = False

    def _hook(self, place: str, part: RowPart) -> None:
        self._hooked.add(place)
        self._block.watch([part.site.name])
        visit, applies = self._visit(place, part.site.name), self._block.applies_at(part.site.name)
        self._block.handles.append(attach(part.site, visit, holds=applies))

    def _visit(self, place: str, name: str) -> Visit:
        def visit(state: torch.Tensor) -> torch.Tensor | None:
            self._block.count_visit(name)
            levels = self._levels.get(place)
            if not levels or (self._in_steps and not self._stepping):
                return None
            forward, copies = self._forward(state)
            before = state.reshape(-1, state.shape[-1])
            out = before.clone()
            for group in chain.from_iterable(levels):
                self._apply(out, group, forward, copies, name)
            # a row whose steering failed has none of its steerings here
            for row in self._failures:
                its = slice(row * copies * forward.length, (row + 1) * copies * forward.length)
                out[its] = before[its]
            return out.view(state.shape)

        return visit

    def _apply(self, out: torch.Tensor, group: Rows, forward: Forward, copies: int, name: str) -> None:
        """Steer the states of ``group`` in ``out`` (batch × length, d)."""
        place = picked(group, forward, copies)
        if place is None:
            return
        index, owner = (one.to(out.device) for one in place)
        try:
            moved, gated = group.moved(out[index], owner)
        except NonFiniteError as error:
            if not self._tolerant:
                raise
            if len(group.rows) == 1:
                self._failures[int(group.rows)] = str(error)
                return
            for one in group.apart():
                self._apply(out, one, forward, copies, name)
            return
        out.index_copy_(0, index, moved)
        self._block.count_rows(name, len(index), gated)

    def _forward(self, state: torch.Tensor) -> tuple[Forward, int]:
        """Return the running pass, and how many of its rows belong to each entry."""
        forward, n = self._context.current, len(self.plans)
        if forward is None or forward.doubt is not None:
            reason = "This module was called outside a pass of its model." if forward is None else forward.doubt
            raise PassError(f"{reason} The rows of this pass cannot be told apart; call the model with input_ids.")
        # generate may expand its batch, with the copies of a row next to each other
        call = self._context.call
        batch = forward.batch if call is None or call.batch is None else call.batch
        if n != batch or forward.batch % batch:
            raise ShapeError(
                f"steer_rows has {n} entries, and the model reads a batch of {batch} rows. Give one entry for each "
                "row, None where a row is not steered."
            )
        forward.require_vectors(state)
        return forward, forward.batch // batch


def _place(part: RowPart) -> str:
    # two names of one module are one place, so that steerings keep their order there
    return f"{part.site.path} {part.site.side}"
