"""The tokens that are read and the positions that count: of texts all of them, of generations the predicting ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn

from repsurgery.errors import ParameterError, TextError
from repsurgery.lm.batching.tokens import Tokens, check_texts, encode
from repsurgery.lm.generate.generate import Generation, predicting_positions, prompt_lengths
from repsurgery.lm.steer.positions import Texts, columns_between, span
from repsurgery.lm.steer.texts import NO_PROMPTS

__all__ = ["Reading", "Shifted", "check_generations", "reading_of"]

Shifted = Literal["all", "generated"]
"""Which positions are shifted: all of them, or those from which a generation's tokens were drawn."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read of n texts.

    Attributes
    ----------
    tokens : list of n lists of int
    steps : list of n slices
        The positions of each text whose predictions count.
    shifted : {"all", "generated"}
    prompts : list of n int, or None
        The lengths of the prompts; None for plain texts, of which nothing is known.
    """

    tokens: list[Tokens]
    steps: list[slice]
    shifted: Shifted
    prompts: list[int] | None = None

    def known(self, batch: Sequence[int]) -> Texts:
        """Return what is known of the prompts of these texts."""
        return NO_PROMPTS if self.prompts is None else Texts(tuple(self.prompts[i] for i in batch))

    def moved(self, batch: Sequence[int], length: int) -> torch.Tensor:
        """Return which positions (batch, length) are shifted."""
        if self.prompts is None:
            return torch.ones(len(batch), length, dtype=torch.bool)
        lengths = torch.tensor([self.prompts[i] for i in batch])[:, None]
        return columns_between(*span(self.shifted, lengths), length).expand(len(batch), -1)

    def counted(self, batch: Sequence[int], length: int) -> torch.Tensor:
        """Return which positions (batch, length) count, padding on the right."""
        mask = torch.zeros(len(batch), length, dtype=torch.bool)
        for row, i in enumerate(batch):
            mask[row, self.steps[i]] = True
        return mask

    def count(self, i: int) -> int:
        """Return how many positions of text ``i`` count."""
        return int(self.steps[i].stop - self.steps[i].start)


def reading_of(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str] | Sequence[Generation],
    *,
    max_length: int | None,
    shifted: Shifted,
    caller: str,
) -> Reading:
    """Return what is read of ``texts``: plain ones as far as ``max_length``, generations as they were drawn."""
    if shifted not in get_args(Shifted):
        raise ParameterError(f"positions is {shifted!r}; it must be one of {list(get_args(Shifted))}.")
    texts = list(texts) if not isinstance(texts, str) else texts  # type: ignore[assignment]
    if any(isinstance(text, Generation) for text in texts):
        rows, steps = predicting_positions(model, tokenizer, check_generations(texts, caller=caller), caller=caller)
        return Reading(rows, steps, shifted, prompt_lengths(steps))
    if shifted != "all":
        raise ParameterError(f"positions={shifted!r} needs generations. {NO_PROMPTS.remedy}")
    tokens = encode(model, tokenizer, check_texts(texts, caller=caller), max_length=max_length, caller=caller)
    return Reading(tokens, [slice(0, len(row)) for row in tokens], shifted)


def check_generations(generations: Sequence[Any], *, caller: str) -> list[Generation]:
    """Return ``generations`` as a list, or raise an error that names what is not one."""
    if isinstance(generations, str) or not isinstance(generations, Sequence) or not generations:
        raise TextError(f"{caller} takes a list of generations; see lm.generate.")
    for i, one in enumerate(generations):
        if not isinstance(one, Generation):
            raise TextError(f"{caller} got a {type(one).__name__} among generations, at index {i}. Pass one kind only.")
    return list(generations)
