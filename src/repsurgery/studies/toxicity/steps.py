"""The vectors from which the model's own continuations were drawn, read once and stored."""

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from repsurgery import lm
from repsurgery.files import Contents
from repsurgery.lm.generate.generate import Generation
from repsurgery.studies.common.stages import KIND, Stages
from repsurgery.studies.toxicity.generators import GeneratorContext

__all__ = ["CHUNK", "read_steps", "spread_out", "texts_key"]

Item = TypeVar("Item")
CHUNK = 200
"""Continuations whose vectors are stored in one file."""


def read_steps(context: GeneratorContext, generations: Sequence[Generation], site: str) -> list[NDArray[np.float32]]:
    """Return, per continuation, the vectors (steps, d) from which its tokens were drawn; stored ones are reused.

    Vectors of continuations that were written under a steering at this site are those that the steering received.
    """
    own = {name: context.identity[name] for name in ("model", "tokenizer")}
    rows: list[NDArray[np.float32]] = []
    for start in range(0, len(generations), CHUNK):
        part = generations[start : start + CHUNK]
        stages = Stages.of(context.work / "policy", {**own, "site": site, "texts": texts_key(part)})
        stage = stages.get("steps", partial(_states_along, context, part, site))
        vectors = np.asarray(stage.arrays["rows"], dtype=np.float32)
        rows += np.split(vectors, np.cumsum(stage.arrays["steps"])[:-1])
    return rows


def _states_along(context: GeneratorContext, part: Sequence[Generation], site: str) -> Contents:
    states = lm.states_along(context.model, context.tokenizer, part, site=site, progress=False)
    steps = np.array([len(rows) for rows in states])
    return Contents(KIND, {}, {"rows": np.concatenate(states), "steps": steps})


def texts_key(generations: Sequence[Generation]) -> list[list[Any]]:
    """Return what decides the steps of ``generations``, beside the model: for the key of stored work."""
    return [[g.prompt, list(g.prompt_tokens), list(g.tokens), g.finished] for g in generations]


def spread_out(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most ``most`` of the ``items``, at equal distances."""
    if len(items) <= most:
        return list(items)
    return [items[i * len(items) // most] for i in range(most)]
