"""The rows of one batch of prompts: their tokens, their steerings and the assistant's turns in them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch
from torch import nn

from repsurgery.errors import ParameterError, PassError
from repsurgery.lm.batching.tokens import Tokens
from repsurgery.lm.chat import ChatText, turns_of
from repsurgery.lm.steer.positions import UNKNOWN_TURNS, Positions
from repsurgery.lm.steer.rows import RowPlan, prepare_row, with_defaults
from repsurgery.lm.steer.turns import prompt_turns, stacked_turns

__all__ = ["BatchRows", "row_plans"]


def row_plans(
    model: nn.Module,
    prompts: list[str],
    steerings: Sequence[Any],
    strength: float | None,
    scale: float,
    positions: Positions | None,
    budget: dict[str, Any],
) -> list[RowPlan]:
    """Return how each prompt is steered, where ``steerings`` has one entry for each."""
    if len(steerings) != len(prompts):
        raise ParameterError(
            f"steering is a list of {len(steerings)} for {len(prompts)} prompts. Give one steering for each prompt, "
            "None where a prompt is not steered."
        )
    if given := [name for name, value in budget.items() if value is not None]:
        raise ParameterError(
            f"{given[0]} is for one steering of all prompts. In a list, state the strength of each one: "
            "lm.Choice(steering, strength=0.5)."
        )
    return [prepare_row(model, with_defaults(value, strength, positions, scale)) for value in steerings]


class BatchRows:
    """The rows of one batch.

    Parameters
    ----------
    prompts : list of str
    tokens : list of Tokens
        The tokens of each prompt.
    plans : list of RowPlan, or None
        How each row is steered; None where one steering, or none, holds for all.
    steered : SteeredRows
        With ``plans``: the open block.

    Attributes
    ----------
    kinds : list of int
        Equal for rows that are steered alike and whose turns are the same, so that equal tokens may be read once.
    """

    def __init__(self, prompts: list[str], tokens: list[Tokens], plans: list[RowPlan] | None, steered: Any) -> None:
        self.prompts, self.tokens, self._plans, self._steered = prompts, tokens, plans, steered
        steerings = [""] * len(prompts) if plans is None else [plan.key for plan in plans]
        # what a message says may look like a turn, so equal tokens may be different conversations
        talks = [repr(prompt.messages) if isinstance(prompt, ChatText) else "" for prompt in prompts]
        alike = list(zip(steerings, talks, strict=True))
        numbers = {kind: i for i, kind in enumerate(dict.fromkeys(alike))}
        self.kinds = [numbers[kind] for kind in alike]

    def begin(self, rows: list[int]) -> None:
        """Steer the passes that follow as these rows are steered."""
        if self._plans is not None:
            self._steered.assign([self._plans[row] for row in rows])

    def stating_turns(self, tokenizer: Any) -> AbstractContextManager[None]:
        """Return a block in which ``generate`` knows the turns of the assistant in these prompts."""
        return prompt_turns(cache(lambda: self._turns(tokenizer)))

    def _turns(self, tokenizer: Any) -> torch.Tensor:
        """Return the positions (n, longest) of the assistant's answers in the prompts that need them."""
        masks = []
        wanted = [True] * len(self.prompts) if self._plans is None else [plan.needs_turns for plan in self._plans]
        for prompt, row, needed in zip(self.prompts, self.tokens, wanted, strict=True):
            if needed and not isinstance(prompt, ChatText):
                raise PassError(f"{prompt[:40]!r} is a plain text. {UNKNOWN_TURNS}")
            masks.append(turns_of(tokenizer, prompt, len(row)) if needed else None)
        return stacked_turns(masks, list(map(len, self.tokens)))
