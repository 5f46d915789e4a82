"""Divide prompts into those to write on, to search on and to confirm on, none of which overlap."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from repsurgery.errors import DataError, ParameterError
from repsurgery.tuning.plan import Plan

__all__ = ["PromptSplit", "split_prompts"]

LEAST = {"writing": 8, "search": 6, "confirmation": 10}
"""The fewest prompts of each part. Ten prompts are the fewest whose sign-flip test can reach p < .01 with one prompt
against the others; six can reach p < .05."""
LONG = 5
"""Words from which a prompt inside a text is an overlap; shorter ones occur in texts by chance."""


@dataclass(frozen=True, slots=True)
class PromptSplit:
    """Prompts for each purpose.

    Attributes
    ----------
    writing : tuple of str
        The model continues them without steering, and fits and prices follow from what it writes.
    search : tuple of str
        Candidates are compared on them.
    confirmation : tuple of str
        Only the winner meets them.
    notes : tuple of str
        Sentences about prompts that were left out.
    """

    writing: tuple[str, ...]
    search: tuple[str, ...]
    confirmation: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def folds(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The writing prompts in two halves; what is fitted on one is judged by the slope on the other."""
        return self.writing[::2], self.writing[1::2]


def split_prompts(prompts: Sequence[str], texts: Sequence[str], plan: Plan, *, seed: int) -> PromptSplit:
    """Return the prompts in three parts, drawn at random by ``seed``.

    Prompts that repeat another one, apart from case and white space, and prompts that occur in one of ``texts`` are
    left out, and a note says how many.

    Guarantees
    ----------
    No prompt is in two parts (test_no_prompt_is_in_two_parts).
    """
    if isinstance(prompts, str) or not all(isinstance(prompt, str) for prompt in prompts):
        raise ParameterError("prompts must be a list of texts, such as the lines of a file.")
    most = {"writing": plan.writing, "search": plan.search, "confirmation": plan.confirmation}
    for name, least in LEAST.items():
        if most[name] < least:
            raise ParameterError(f"{name} is {most[name]}; a search needs at least {least} prompts of this part.")
    distinct = list({_plain(prompt): prompt for prompt in reversed(prompts) if prompt.strip()}.values())[::-1]
    known = " \n ".join(map(_plain, texts))
    starts = {_plain(text) for text in texts}
    apart = [prompt for prompt in distinct if not _inside(_plain(prompt), known, starts)]
    notes = []
    if len(distinct) < len(prompts):
        notes.append(
            f"{len(prompts) - len(distinct)} of {len(prompts)} prompts repeat another prompt, and were left out."
        )
    if len(apart) < len(distinct):
        notes.append(f"{len(distinct) - len(apart)} prompts occur in the texts, and were left out.")
    sizes = _sizes(len(apart), most)
    short = [name for name, least in LEAST.items() if sizes[name] < least]
    if short:
        needed = _needed(most)
        raise DataError(
            f"There are {len(apart)} usable prompts{' (' + ' '.join(notes) + ')' if notes else ''}; a search needs at "
            f"least {needed}: {LEAST['writing']} to write on, {LEAST['search']} to compare candidates on, and "
            f"{LEAST['confirmation']} that take no part, so that the test of the effect can reach p < .01. Add "
            f"{needed - len(apart)} prompts."
        )
    order = np.random.default_rng(seed).permutation(len(apart))
    drawn = iter([apart[i] for i in order])
    writing, search, confirmation = (tuple(islice(drawn, sizes[name])) for name in LEAST)
    return PromptSplit(writing, search, confirmation, tuple(notes))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _inside(prompt: str, known: str, texts: set[str]) -> bool:
    return prompt in texts or (len(prompt.split()) >= LONG and prompt in known)


def _sizes(count: int, most: dict[str, int]) -> dict[str, int]:
    """Return the size of each part: the most where there are enough prompts, otherwise in proportion."""
    share = min(1.0, count / sum(most.values()))
    return {name: int(share * size) for name, size in most.items()}


def _needed(most: dict[str, int]) -> int:
    """Return the fewest prompts with which every part has its least size."""
    return next(n for n in range(1, 10**6) if all(_sizes(n, most)[name] >= least for name, least in LEAST.items()))
