"""Hidden states along what a model wrote: one row for every position that predicted a token."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from repsurgery.lm.batching import evaluating, run_batches, sorted_batches
from repsurgery.lm.generate.generate import Generation, prompt_tokens
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
    """Return, per generation, the states (steps, d) from which its tokens were drawn, the end token's included.

    The sampled tokens themselves are read, not their text tokenised anew. A state at ``site`` does not depend on what
    steers the model at that same site alone, so these are the vectors that a steering there met.

    Parameters
    ----------
    model, tokenizer
        The decoder that generated, now unsteered, and its tokenizer.
    generations : sequence of n `Generation`
    site, batch_size, progress
        As in `extract`.

    Guarantees
    ----------
    The states are those met while generating, of a prompt that was cut too
    (test_a_cut_prompt_is_read_as_it_was_cut, test_states_along_a_text_are_those_that_steering_met).
    """
    prompts = prompt_tokens(model, tokenizer, generations, caller="states_along")
    rows = [[*prompt, *g.tokens] for prompt, g in zip(prompts, generations, strict=True)]
    found: dict[int, NDArray[np.float32]] = {}
    with evaluating(model), reader(model, tokenizer, [site], "all") as read:

        def run(batch: list[int]) -> None:
            states = read([rows[i] for i in batch])[site]
            parts = np.split(states, np.cumsum([len(rows[i]) for i in batch])[:-1])
            for i, part in zip(batch, parts, strict=True):
                # the last token predicts nothing, unless an end followed it
                stop = len(rows[i]) if generations[i].finished else len(rows[i]) - 1
                found[i] = part[len(prompts[i]) - 1 : stop].copy()

        run_batches(sorted_batches(list(map(len, rows)), batch_size), run, progress=progress, label=f"along {site}")
    return [found[i] for i in range(len(rows))]
