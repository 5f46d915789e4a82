"""Continuations of prompts without steering and under each of several saved steerings, side by side."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import ParameterError
from repsurgery.lm.positions import Positions

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
    model: str = lm.models.DEFAULT_MODEL,
    sites: Sequence[str] = ("final",),
    strength: float = 1.0,
    positions: Positions = "all",
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
    sites : sequence of str
        One for all files, or one for each.
    model, strength, positions, n, max_new_tokens, seed
        See `lm.load` and `lm.generate`.
    """
    places = list(sites) * len(files) if len(sites) == 1 else list(sites)
    if len(places) != len(files):
        raise ParameterError(f"Got {len(sites)} sites for {len(files)} files; give one for all, or one for each.")
    steerings = [None, *({site: rs.load(Path(file))} for site, file in zip(places, files, strict=True))]
    network, tokenizer = lm.load(model)
    columns = [
        lm.generate(
            network,
            tokenizer,
            prompts,
            steering=steering,
            strength=strength,
            positions=positions,
            n=n,
            max_new_tokens=max_new_tokens,
            seed=seed,
            progress=progress,
        )
        for steering in steerings
    ]
    return [Compared(row[0].prompt, row[0].sample, tuple(g.text for g in row)) for row in zip(*columns, strict=True)]
