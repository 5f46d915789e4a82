"""Divide prompts into those to write on, to search on and to confirm on, none of which overlap."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from repsurgery.errors import DataError, ParameterError
from repsurgery.lm.batching.tokens import check_texts
from repsurgery.tuning.alike import plain
from repsurgery.tuning.plan import Plan

__all__ = ["PromptSplit", "split_prompts"]

LEAST = {"writing": 8, "search": 6, "confirmation": 10}
"""The fewest prompts of each part. If ten prompts all change in one direction, the sign-flip test has p = .002."""
FEW = 3
"""Words from which a prompt that begins another one makes the two alike."""
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

    def read_by(self, tokenizer: Any) -> "PromptSplit":
        """Return the same prompts, with conversations as the chat template of ``tokenizer`` writes them."""
        parts = ("writing", "search", "confirmation")
        read = {part: check_texts(getattr(self, part), caller="tune", tokenizer=tokenizer) for part in parts}
        return replace(self, **{part: tuple(texts) for part, texts in read.items()})

    @property
    def folds(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The writing prompts in two halves; what is fitted on one is judged by the slope on the other."""
        return self.writing[::2], self.writing[1::2]


def split_prompts(prompts: Sequence[str], texts: Sequence[str], plan: Plan, *, seed: int) -> PromptSplit:
    """Return the prompts in three parts, drawn at random by ``seed``.

    Prompts that repeat or continue another one, apart from case and white space, and prompts that occur in one of
    ``texts`` are left out, and a note says how many.

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
    visible = [prompt for prompt in prompts if prompt.strip()]
    others = {plain(prompt) for prompt in visible}
    apart_from_others = [prompt for prompt in visible if not _extends(plain(prompt), others)]
    distinct = list({plain(prompt): prompt for prompt in reversed(apart_from_others)}.values())[::-1]
    known = " \n ".join(map(plain, texts))
    whole = {plain(text) for text in texts}
    apart = [prompt for prompt in distinct if not _inside(plain(prompt), known, whole)]
    notes = []
    if len(distinct) < len(visible):
        notes.append(
            f"{len(visible) - len(distinct)} of {len(visible)} prompts repeat or continue another prompt, and were "
            "left out."
        )
    if len(apart) < len(distinct):
        notes.append(f"{len(distinct) - len(apart)} prompts occur in the texts, and were left out.")
    sizes = _sizes(len(apart), most)
    short = [name for name, least in LEAST.items() if sizes[name] < least]
    if short:
        needed = sum(LEAST.values())
        raise DataError(
            f"There are {len(apart)} usable prompts{' (' + ' '.join(notes) + ')' if notes else ''}; a search needs at "
            f"least {needed}: {LEAST['writing']} to write on, {LEAST['search']} to compare candidates on, and "
            f"{LEAST['confirmation']} that take no part, so that the test of the effect can reach p < .01. Add "
            f"at least {needed - len(apart)} more."
        )
    order = np.random.default_rng(seed).permutation(len(apart))
    drawn = iter([apart[i] for i in order])
    writing, search, confirmation = (tuple(islice(drawn, sizes[name])) for name in LEAST)
    return PromptSplit(writing, search, confirmation, tuple(notes))


def _extends(prompt: str, others: set[str]) -> bool:
    """Return whether a prompt begins with another one of at least `FEW` words."""
    words = prompt.split()
    return any(" ".join(words[:n]) in others for n in range(FEW, len(words)))


def _inside(prompt: str, known: str, texts: set[str]) -> bool:
    return prompt in texts or (len(prompt.split()) >= LONG and prompt in known)


def _sizes(count: int, most: dict[str, int]) -> dict[str, int]:
    """Return the size of each part: the most if there are enough prompts, else its least and a share of the rest."""
    if count >= sum(most.values()):
        return dict(most)
    rest, room = count - sum(LEAST.values()), {name: most[name] - least for name, least in LEAST.items()}
    return {name: least + rest * room[name] // max(1, sum(room.values())) for name, least in LEAST.items()}
