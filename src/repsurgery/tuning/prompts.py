"""Divide prompts into those to write on, to search on and to confirm on, none of which overlap."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from repsurgery.errors import DataError, ParameterError
from repsurgery.lm.batching.tokens import check_texts
from repsurgery.tuning.alike import FEWEST, Runs, are_alike, nearly_in, plain, runs_of
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

    Prompts that repeat or continue another one, apart from case and white space, and prompts that nearly repeat one of
    ``texts`` or occur in it are left out, and a note says how many. Of prompts that nearly repeat each other, see
    `are_alike`, those that have no room in the part of the first one are left out as well; of prompts of three words or
    fewer, only those that differ in punctuation alone.

    Guarantees
    ----------
    No prompt is in two parts (test_no_prompt_is_in_two_parts), and none nearly repeats one of another part
    (test_prompts_that_nearly_repeat_each_other_are_in_one_part).
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
    repeats = nearly_in(distinct, texts)
    apart = [
        one for one, near in zip(distinct, repeats, strict=True) if not (near or _inside(plain(one), known, whole))
    ]
    notes = []
    if len(distinct) < len(visible):
        notes.append(
            f"{len(visible) - len(distinct)} of {len(visible)} prompts repeat or continue another prompt, and were "
            "left out."
        )
    if len(apart) < len(distinct):
        notes.append(f"{len(distinct) - len(apart)} prompts occur in the texts, and were left out.")
    order = np.random.default_rng(seed).permutation(len(apart))
    drawn = [apart[i] for i in order]
    runs, usable = list(map(runs_of, drawn)), len(apart)
    while True:
        sizes = _sizes(usable, most)
        short = [name for name, least in LEAST.items() if sizes[name] < least]
        places = [] if short else _placed(runs, list(sizes.values()))
        missing = sum(sizes.values()) - sum(place is not None for place in places)
        if short or not missing:
            break
        # prompts that nearly repeat each other do not fill parts of these sizes
        usable -= missing
    near = len(apart) - usable if short else places.count(None)
    if near:
        notes.append(f"{near} prompts nearly repeat one of another part, and were left out.")
    if short:
        needed = sum(LEAST.values())
        raise DataError(
            f"There are {usable} usable prompts{' (' + ' '.join(notes) + ')' if notes else ''}; a search needs at "
            f"least {needed}: {LEAST['writing']} to write on, {LEAST['search']} to compare candidates on, and "
            f"{LEAST['confirmation']} that take no part, so that the test of the effect can reach p < .01. Add "
            f"at least {needed - usable} more."
        )
    parts = [tuple(one for one, at in zip(drawn, places, strict=False) if at == part) for part in range(len(LEAST))]
    writing, search, confirmation = parts
    return PromptSplit(writing, search, confirmation, tuple(notes))


def _placed(runs: Sequence[Runs], sizes: Sequence[int]) -> list[int | None]:
    """Return the part of each prompt, in their order, until all parts are full.

    A prompt goes to the first part with room, or to that of the prompts which it nearly repeats; None if that is full,
    or if these are several.
    """
    room, places = list(sizes), list[int | None]()
    for one in runs:
        if not any(room):
            break
        near = {part for part, other in zip(places, runs, strict=False) if part is not None and _near(one, other)}
        part = next(i for i, left in enumerate(room) if left) if not near else min(near)
        fits = len(near) < 2 and room[part] > 0
        places.append(part if fits else None)
        room[part] -= fits
    return places


def _near(one: Runs, other: Runs) -> bool:
    # short prompts that differ in a number or a name have most of their runs in common
    return one == other or (min(len(one), len(other)) >= FEWEST and are_alike(one, other))


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
