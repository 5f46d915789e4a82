"""Continuations of prompts without steering and with each of several saved steerings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from repsurgery import lm
from repsurgery.lm.load.models import DEFAULT_MODEL
from repsurgery.workflows.steerings import Opened, recognised

__all__ = ["Compared", "compare"]


@dataclass(frozen=True, slots=True)
class Compared:
    """One sample of one prompt.

    Attributes
    ----------
    prompt : str
    sample : int
    texts : tuple of str
        The continuation of the unsteered model, then one per steering, all drawn with the same random numbers.
    """

    prompt: str
    sample: int
    texts: tuple[str, ...]


def compare(
    steerings: Sequence[Opened], prompts: Sequence[str], *, model: str = DEFAULT_MODEL, **sampling: Any
) -> list[Compared]:
    """Return the continuations of ``model`` without steering and with each steering.

    Parameters
    ----------
    steerings : sequence of Opened
        See `open_steerings`; each steers alone.
    prompts : sequence of str
    model : str
        See `lm.load`.
    **sampling
        Arguments of `lm.generate`: n, max_new_tokens, seed, progress.

    Warns
    -----
    OriginWarning
        A steering was fitted at another site, or on a model with other weights.
    """
    network, tokenizer = lm.load(model)
    columns = [
        lm.generate(network, tokenizer, prompts, steering=steering, **sampling)
        for steering in [None, *(opened.steering for opened in recognised(steerings, network))]
    ]
    return [Compared(row[0].prompt, row[0].sample, tuple(g.text for g in row)) for row in zip(*columns, strict=True)]
