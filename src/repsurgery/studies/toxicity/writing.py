"""Let a generator continue prompts, and store each text at once, so that nothing is written twice."""

import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from repsurgery.checkpoint import Journal, journal_of
from repsurgery.errors import DataError
from repsurgery.lm.generate.generate import Generation
from repsurgery.studies.toxicity.generators import Continuation, Cost, TextGenerator, sample_seeds

__all__ = ["Written", "is_written", "write"]

LAYOUT = 1
"""Raised when the same generator would write other texts, so that texts of an older layout are not used."""
AT_ONCE = 100
"""Continuations that are asked for before the next texts are stored."""


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """What one generator has written.

    Attributes
    ----------
    rows : list of lists of Generation
        The continuations of each prompt that the generator continued, which are the first ones.
    identity : dict
        What decides the texts, beside the prompts.
    cost : Cost or None
        The mean cost of one continuation; None where texts come from a run that did not measure it.
    """

    rows: list[list[Generation]]
    identity: dict[str, Any]
    cost: Cost | None


def write(
    generator: TextGenerator,
    prompts: Sequence[str],
    samples: int,
    *,
    folder: Path,
    advance: Callable[[int], None] = lambda prompts: None,
) -> Written:
    """Return ``samples`` continuations of each of the distinct ``prompts``, in order.

    A generator with a `prompt_share` continues the first ones only. Texts that a generator of the same identity wrote
    before are read from ``folder``. A sample depends on its prompt and number alone, so fewer samples are the first of
    more.

    Parameters
    ----------
    generator : TextGenerator
    prompts : sequence of str
    samples : int
    folder : path
    advance : function of a number
        Called with the number of prompts that were finished, or are left out.
    """
    seed, identity = generator.context.spec.seed, _identity(generator)
    texts, costs = journal_of(folder, "texts", identity), journal_of(folder, "costs", identity)
    own = generator.own_prompts(prompts)
    missing = _missing(texts, own, samples)
    advance(len(prompts) - len(missing))
    # the longest first: little padding, and the largest memory is needed at once
    missing.sort(key=len, reverse=True)
    step = max(1, AT_ONCE // samples)
    for part in (missing[start : start + step] for start in range(0, len(missing), step)):
        rows, cost = _generated(generator, part, sample_seeds(seed, samples))
        # costs first: texts that are stored have their cost, whenever the process is killed
        share = [samples, *(value / len(part) for value in astuple(cost))]
        costs.note(dict.fromkeys(part, share))
        texts.note({prompt: [list(c) for c in row] for prompt, row in zip(part, rows, strict=True)})
        advance(len(part))
    rows_of = [_generations(prompt, i, texts[prompt][:samples]) for i, prompt in enumerate(own)]
    return Written(rows_of, identity, _mean_cost(costs, own))


def is_written(generator: TextGenerator, prompts: Sequence[str], samples: int, *, folder: Path) -> bool:
    """Return whether `write` would find every text in ``folder``."""
    texts = journal_of(folder, "texts", _identity(generator))
    return not _missing(texts, generator.own_prompts(prompts), samples)


def _identity(generator: TextGenerator) -> dict[str, Any]:
    return {**generator.identity, "seed": generator.context.spec.seed, "layout": LAYOUT}


def _missing(texts: Journal, prompts: Sequence[str], samples: int) -> list[str]:
    return [prompt for prompt in prompts if len(texts.get(prompt, ())) < samples]


def _generated(
    generator: TextGenerator, prompts: Sequence[str], seeds: Sequence[int]
) -> tuple[list[list[Continuation]], Cost]:
    before, start = generator.cost, time.perf_counter()
    rows = generator.generate(prompts, seeds)
    generator.cost += Cost(seconds=time.perf_counter() - start)
    if [len(row) for row in rows] != [len(seeds)] * len(prompts):
        raise DataError(
            f"The generator {generator.name!r} returned {[len(row) for row in rows]} continuations for {len(prompts)} "
            f"prompts and {len(seeds)} seeds. Return one continuation per seed for every prompt."
        )
    spent = (after - earlier for after, earlier in zip(astuple(generator.cost), astuple(before), strict=True))
    return rows, Cost(*spent)


def _mean_cost(costs: Journal, prompts: Sequence[str]) -> Cost | None:
    if not all(prompt in costs for prompt in prompts):
        return None
    counts, *sums = map(sum, zip(*(costs[prompt] for prompt in prompts), strict=True))
    return Cost(*(round(total / counts, 4) for total in sums))


def _generations(prompt: str, index: int, stored: list[list[Any]]) -> list[Generation]:
    return [Generation(prompt, index, s, text, tuple(tokens), end) for s, (text, tokens, end) in enumerate(stored)]
