"""`RowDecoder`: a batch of texts that grows and shrinks while it is decoded, each row under its own steering."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Self

import torch
from torch import nn

from repsurgery.errors import ModelError, ParameterError, PassError
from repsurgery.lm.batching.batches import entry_device, evaluating
from repsurgery.lm.batching.tokens import Tokens, context_length, pad, pad_id
from repsurgery.lm.generate.decode_pass import (
    append_rows,
    decode_pass,
    is_plain_cache,
    keep_positions,
    keep_rows,
    parameters_of,
    plain_cache,
    rope_threshold,
)
from repsurgery.lm.sites.wrappers import unwrapped, virtual_tokens
from repsurgery.lm.steer.positions import UNKNOWN_TURNS
from repsurgery.lm.steer.rows import RowPlan, prepare_row
from repsurgery.lm.steer.steer_rows import SteeredRows, row_block
from repsurgery.lm.steer.turns import prompt_turns, stacked_turns

__all__ = ["RowDecoder"]

_Asked = tuple[Tokens, RowPlan, list[bool] | None]
"""A prompt, its steering, and the turns of the assistant in it."""


class RowDecoder:
    """Decodes texts together that begin and end at different times; a context manager for one thread.

    Parameters
    ----------
    model, tokenizer
        A transformers decoder and its tokenizer; neither is changed.

    Attributes
    ----------
    failures : mapping of int to str
        The rows whose steering gave NaN or infinity in the last pass, and why, until rows leave. Such a row has none of
        its steerings at the site where one failed.

    Guarantees
    ----------
    A row's logits are those of its text on its own, whoever joins and leaves (test_rows_join_and_leave).
    Rows with equal prompts and steerings are read once (test_equal_prompts_are_read_once).
    A model whose rotary embeddings depend on the longest text of a batch is refused, unless all texts are below the
    length from which they do (test_rotary_embeddings_that_depend_on_the_batch_are_refused).
    A failed pass leaves the batch as it was, if its cache is keys and values (test_a_failed_pass_leaves_the_batch).
    """

    def __init__(self, model: nn.Module, tokenizer: Any) -> None:
        self.model, self.failures = model, _NONE
        self._accepted = parameters_of(model)
        config: Any = getattr(unwrapped(model), "config", None)
        if getattr(config, "is_encoder_decoder", False) or "past_key_values" not in self._accepted:
            raise ModelError(
                f"{type(unwrapped(model)).__name__} is not a decoder with a cache of keys and values, so its texts "
                "cannot be decoded in one growing batch. Use lm.generate."
            )
        if virtual_tokens(model):
            raise ModelError("Prompt and prefix tuning cannot be decoded in a growing batch. Use lm.generate.")
        self._padding, self._context = pad_id(model, tokenizer), context_length(model, tokenizer)
        if (threshold := rope_threshold(model)) < self._context:
            raise ModelError(
                f"The rotary embeddings of {type(unwrapped(model)).__name__} change for all rows of a batch when one "
                f"text has more than {threshold} tokens, so longer and shorter texts cannot be decoded together. Set "
                f"model_max_length of the tokenizer (in its tokenizer_config.json) to {threshold}, or use lm.generate "
                "with batch_size=1."
            )
        self._plans: list[RowPlan] = []
        self._mask = torch.empty(0, 0)
        self._cache: Any = None
        self._stack = ExitStack()
        self._steered: SteeredRows

    def __enter__(self) -> Self:
        self._stack.enter_context(evaluating(self.model))
        self._steered = self._stack.enter_context(row_block(self.model, failures="note", in_steps=True))
        self._steered.excuse()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
        self._stack.__exit__(kind, error, trace)

    def __len__(self) -> int:
        """Return how many rows the batch has."""
        return len(self._plans)

    @property
    def joinable(self) -> bool:
        """Whether rows may join the batch now; a cache with more than keys and values admits none once it is filled."""
        return not self._plans or is_plain_cache(self._cache)

    def join(
        self, prompts: Sequence[Tokens], steerings: Sequence[Any], *, turns: Sequence[list[bool] | None] = ()
    ) -> torch.Tensor:
        """Append a row for each prompt, and return the logits (n, vocabulary) after it, in float32.

        Parameters
        ----------
        prompts : sequence of lists of tokens
        steerings : sequence
            One entry for each prompt; see `prepare_row`.
        turns : sequence
            For each prompt, which of its tokens the assistant wrote (`assistant_turns`), or None; only a steering with
            ``positions="assistant"`` needs it. Empty: None for all.
        """
        if not prompts or len(prompts) != len(steerings) or not all(prompts):
            raise ParameterError(
                f"join got {len(prompts)} prompts and {len(steerings)} steerings. Give one steering for each prompt, "
                "None for no steering, and no empty prompt."
            )
        if turns and [None if mask is None else len(mask) for mask in turns] != [
            None if mask is None else len(tokens) for tokens, mask in zip(prompts, turns, strict=False)
        ]:
            raise ParameterError("turns must hold None or one value for each token of its prompt. See assistant_turns.")
        if (longest := max(map(len, prompts))) >= self._context:
            raise ParameterError(
                f"join got a prompt of {longest} tokens; the context holds {self._context}, and a new token needs one "
                "of them. Shorten the prompt."
            )
        if not self.joinable:
            raise ModelError("The cache of this model cannot take further rows. Wait until the batch is empty.")
        plans = [prepare_row(self.model, steering) for steering in steerings]
        marks = [
            mask if plan.needs_turns else None for plan, mask in zip(plans, turns or [None] * len(plans), strict=True)
        ]
        if any(plan.needs_turns and mask is None for plan, mask in zip(plans, marks, strict=True)):
            raise PassError(UNKNOWN_TURNS)
        rows_asked = list(zip(prompts, plans, marks, strict=True))
        keys = [(tuple(tokens), plan.key, tuple(mask or ())) for tokens, plan, mask in rows_asked]
        distinct = dict(zip(keys, rows_asked, strict=True))
        order = {key: i for i, key in enumerate(distinct)}
        index = [order[key] for key in keys]
        try:
            cache, mask, logits = self._read(list(distinct.values()))
            failed = dict(self._steered.failures)
            if len(distinct) < len(index) and not is_plain_cache(cache):
                cache, mask, logits = self._read(rows_asked)
                failed, index = dict(self._steered.failures), list(range(len(prompts)))
        finally:
            self._steered.assign(self._plans)
        rows = torch.tensor(index, device=mask.device)
        if len(distinct) < len(index):
            keep_rows(cache, rows)
        before = len(self._plans)
        self._append(cache, mask[rows])
        self._plans += plans
        self._steered.assign(self._plans)
        self.failures = MappingProxyType({before + i: failed[row] for i, row in enumerate(index) if row in failed})
        return logits[rows.to(logits.device)]

    def step(self, tokens: Sequence[int]) -> torch.Tensor:
        """Read one more token of each row, and return the logits (n, vocabulary) after it, in float32."""
        if not tokens or len(tokens) != len(self):
            raise ParameterError(f"step got {len(tokens)} tokens for {len(self)} rows. Give one token for each row.")
        mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], dim=1)
        ids = torch.tensor(tokens, device=mask.device)[:, None]
        self._steered.assign(self._plans)
        try:
            with self._steered.step_of(prompt=0):
                output = decode_pass(self.model, self._accepted, ids, mask, past_key_values=self._cache)
        except BaseException:
            # blocks before the failure have already added their keys and values
            if is_plain_cache(self._cache):
                keep_positions(self._cache, self._mask.shape[1])
            raise
        self._cache, self._mask = output.past_key_values, mask
        self.failures = MappingProxyType(dict(self._steered.failures))
        logits: torch.Tensor = output.logits[:, -1].float()
        return logits

    def leave(self, rows: Collection[int]) -> None:
        """Remove rows; the others keep their order."""
        gone = set(rows)
        if strange := gone - set(range(len(self))):
            raise ParameterError(f"leave got the rows {sorted(strange)}; the batch has rows 0 to {len(self) - 1}.")
        self.failures = _NONE
        kept = [row for row in range(len(self)) if row not in gone]
        if not kept:
            self.clear()
            return
        if not gone:
            return
        index = torch.tensor(kept, device=self._mask.device)
        mask = self._mask[index]
        # columns in which every remaining row has padding are dropped
        first = int(mask.any(dim=0).int().argmax())
        if is_plain_cache(self._cache):
            keep_rows(self._cache, index, first)
            mask = mask[:, first:]
        else:
            self._cache.batch_select_indices(index)
        self._mask, self._plans = mask, [self._plans[row] for row in kept]
        self._steered.assign(self._plans)

    def clear(self) -> None:
        """Remove every row."""
        self._plans, self._cache, self._mask = [], None, torch.empty(0, 0)
        self._steered.assign([])

    def _read(self, asked: Sequence[_Asked]) -> tuple[Any, torch.Tensor, torch.Tensor]:
        prompts, plans, turns = [row[0] for row in asked], [row[1] for row in asked], [row[2] for row in asked]
        device = entry_device(self.model)
        ids, mask = (one.to(device) for one in pad(prompts, token=self._padding, side="left"))
        self._steered.assign(plans)
        more = {} if (cache := plain_cache(self.model)) is None else {"past_key_values": cache}
        stated = partial(stacked_turns, turns, list(map(len, prompts)))
        with prompt_turns(stated), self._steered.step_of(prompt=ids.shape[1]):
            output = decode_pass(self.model, self._accepted, ids, mask, **more)
        return output.past_key_values, mask, output.logits[:, -1].float()

    def _append(self, cache: Any, mask: torch.Tensor) -> None:
        if not self._plans:
            self._cache, self._mask = cache, mask
            return
        append_rows(self._cache, cache)
        width = max(self._mask.shape[1], mask.shape[1])
        self._mask = torch.cat([nn.functional.pad(one, (width - one.shape[1], 0)) for one in (self._mask, mask)])


_NONE: Mapping[int, str] = MappingProxyType({})
