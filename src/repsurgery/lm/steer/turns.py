"""Tell a steering block which positions of a batch of prompts belong to answers of the assistant."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch

__all__ = ["Turns", "answer_positions", "prompt_turns", "stacked_turns", "turns_of_call"]

Turns = Callable[[], torch.Tensor]
"""Returns the `answer_positions` (n, length) of prompts, padded on the left; called only if they are steered."""

_TURNS: ContextVar[Turns | None] = ContextVar("repsurgery_turns", default=None)


def answer_positions(mask: Sequence[bool]) -> list[bool]:
    """Return the positions that read or predict a token of the assistant, from the mask of its tokens.

    While an answer is written, the position before its first token is steered like those of its tokens, and the end
    token is never read. The same positions are steered when the answer is read again as a part of the prompt.

    Guarantees
    ----------
    An answer is read as it was written (test_an_earlier_answer_is_read_as_it_was_written).
    """
    return [here or after for here, after in zip(mask, [*mask[1:], False], strict=True)]


def stacked_turns(masks: Sequence[Sequence[bool] | None], lengths: Sequence[int]) -> torch.Tensor:
    """Return the `answer_positions` (n, longest) of prompts of these ``lengths``, padded on the left; none for None."""
    turns = torch.zeros(len(lengths), max(lengths), dtype=torch.bool)
    for row, (mask, length) in enumerate(zip(masks, lengths, strict=True)):
        if mask is not None:
            turns[row, max(lengths) - length :] = torch.tensor(answer_positions(mask))
    return turns


@contextmanager
def prompt_turns(turns: Turns | None) -> Iterator[None]:
    """State, while the block runs, the turns in the prompts of the calls of ``generate`` in this thread."""
    token = _TURNS.set(turns)
    try:
        yield
    finally:
        _TURNS.reset(token)


def turns_of_call() -> Turns | None:
    """Return what the innermost `prompt_turns` of this thread states."""
    return _TURNS.get()
