"""Hidden states along a generation: one row for every position that predicted a token."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from repsurgery.lm.batching.batches import evaluating, map_batches
from repsurgery.lm.generate.generate import Generation, predicting_positions, prompt_lengths
from repsurgery.lm.read.states import reader

__all__ = ["states_along"]


def states_along(
    model: nn.Module,
    tokenizer: Any,
    generations: Sequence[Generation],
    *,
    site: str = "final",
    batch_size: int = 32,
    progress: bool = True,
) -> list[NDArray[np.float32]]:
    """Return, per generation, the states (steps, d) from which its tokens were drawn, including the end token.

    The sampled tokens themselves are read, without tokenising the text again. A state at ``site`` does not depend on
    steering at that site alone, so these are the vectors that such a steering received. Inside a block of `steer` the
    positions that `generate` steers are steered.

    Parameters
    ----------
    model, tokenizer
        The decoder that generated the texts, now unsteered, and its tokenizer.
    generations : sequence of n `Generation`
    site, batch_size, progress
        As in `extract`.

    Guarantees
    ----------
    The states are those that occurred while generating, also after a truncated prompt
    (test_a_cut_prompt_is_read_as_it_was_cut, test_states_along_a_text_are_those_that_steering_met).
    """
    rows, steps = predicting_positions(model, tokenizer, generations, caller="states_along")
    prompts = prompt_lengths(steps)
    with evaluating(model), reader(model, tokenizer, [site], "all") as read:

        def run(batch: list[int]) -> list[NDArray[np.float32]]:
            states = read([rows[i] for i in batch], prompts=[prompts[i] for i in batch])[site]
            parts = np.split(states, np.cumsum([len(rows[i]) for i in batch])[:-1])
            return [part[steps[i]].copy() for i, part in zip(batch, parts, strict=True)]

        return map_batches(list(map(len, rows)), run, batch_size=batch_size, progress=progress, label=f"reading {site}")
