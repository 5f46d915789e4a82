"""Texts that nearly repeat each other: normalised, and compared by the runs of characters that they share."""

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence

from repsurgery.lm.chat import ChatText

__all__ = ["ALIKE", "nearly_in", "plain"]

RUN = 4
"""Characters in a run; a word that is changed, added or left out costs few of them."""
ALIKE = 0.8
"""The share of all runs of two texts that both have, from which one of them nearly repeats the other."""


def plain(text: str) -> str:
    """Return a text without what hardly tells it from another: case, kinds of white space, and ways to write a letter.

    Of a conversation, the contents of its messages are taken.
    """
    if isinstance(text, ChatText):
        text = " ".join(message["content"] for message in text.messages)
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def nearly_in(texts: Sequence[str], others: Sequence[str]) -> list[bool]:
    """Return, for each text, whether it nearly repeats one of ``others``.

    Two texts repeat each other if they differ in case, white space and punctuation alone, or if at least the share
    `ALIKE` of the runs of characters of either is in both.

    Guarantees
    ----------
    The result is that of comparing every pair (test_every_pair_that_is_alike_is_found).
    """
    runs, known = [list(map(_runs, part)) for part in (texts, others)]
    rarity = Counter(run for one in (*runs, *known) for run in one)
    by_run: dict[str, set[int]] = defaultdict(set)
    for i, one in enumerate(known):
        for run in _rarest(one, rarity):
            by_run[run].add(i)
    found = []
    for one in runs:
        candidates = set().union(*(by_run.get(run, ()) for run in _rarest(one, rarity)))
        found.append(any(_share(one, known[i]) >= ALIKE for i in candidates))
    return found


def _runs(text: str) -> frozenset[str]:
    words = "".join(c if c.isalnum() else " " for c in plain(text)).split()
    # a text of signs alone, such as an emoticon, is compared as it is
    padded = f" {' '.join(words)} " if words else plain(text)
    return frozenset(padded[i : i + RUN] for i in range(max(1, len(padded) - RUN + 1)))


def _rarest(runs: frozenset[str], rarity: Counter[str]) -> list[str]:
    """Return so many of the rarest runs that two texts which are alike have one of these in common."""
    least = math.ceil(ALIKE * len(runs))
    return sorted(runs, key=lambda run: (rarity[run], run))[: len(runs) - least + 1]


def _share(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b)
