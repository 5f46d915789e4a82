"""Continuations of prompts without steering and under each of several saved steerings, side by side."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from repsurgery import lm
from repsurgery.lm.load.models import DEFAULT_MODEL
from repsurgery.lm.steer.positions import Positions
from repsurgery.workflows.steerings import open_steerings, recognised

__all__ = ["Compared", "compare"]


@dataclass(frozen=True, slots=True)
class Compared:
    """One sample of one prompt.

    Attributes
    ----------
    prompt : str
    sample : int
    texts : tuple of str
        The base's continuation first, then one per steering, all drawn with the same noise.
    """

    prompt: str
    sample: int
    texts: tuple[str, ...]


def compare(
    files: Sequence[str | os.PathLike[str]],
    prompts: Sequence[str],
    *,
    model: str = DEFAULT_MODEL,
    sites: Sequence[str] = (),
    strength: float | None = None,
    positions: Positions | None = None,
    n: int = 1,
    max_new_tokens: int = 20,
    seed: int = 0,
    progress: bool = True,
) -> list[Compared]:
    """Return what ``model`` writes without steering and under each file.

    Parameters
    ----------
    files : sequence of paths
        Maps, steering functions or estimators, each steering alone.
    prompts : sequence of str
    sites, strength, positions
        See `open_steerings`.
    model, n, max_new_tokens, seed
        See `lm.load` and `lm.generate`.

    Warns
    -----
    OriginWarning
        Where a file was fitted at another site, or on a model of other weights.
    """
    opened = open_steerings(files, sites=sites, strength=strength, positions=positions)
    network, tokenizer = lm.load(model)
    steerings = [None, *(one.steering for one in recognised(opened, network))]
    columns = [
        lm.generate(
            network,
            tokenizer,
            prompts,
            steering=steering,
            n=n,
            max_new_tokens=max_new_tokens,
            seed=seed,
            progress=progress,
        )
        for steering in steerings
    ]
    return [Compared(row[0].prompt, row[0].sample, tuple(g.text for g in row)) for row in zip(*columns, strict=True)]
