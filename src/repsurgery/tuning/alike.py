"""Texts that nearly repeat each other: normalised, and compared by the runs of characters that they share."""

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence

from repsurgery.lm.chat import ChatText

__all__ = ["FEWEST", "Runs", "are_alike", "nearly_in", "plain", "runs_of"]

Runs = frozenset[str]

RUN = 4
"""Characters in a run; a word that is changed, added or left out costs few of them."""
ALIKE = 0.8
"""The share of all runs of two texts that both have, from which one of them nearly repeats the other."""
WITHIN = 0.9
"""The share of the runs of the shorter text that the longer one has, from which it holds the shorter one."""
FEWEST = 16
"""Runs of a text, about four words, from which it is looked for in longer ones; others occur in them by chance."""
MOST_TIMES = 16
"""Times the runs of a shorter text that a longer one may have; much longer ones have most runs by chance."""


def plain(text: str) -> str:
    """Return a text without what hardly tells it from another: case, kinds of white space, and ways to write a letter.

    Of a conversation, the contents of its messages are taken.
    """
    if isinstance(text, ChatText):
        text = " ".join(message["content"] for message in text.messages)
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def nearly_in(texts: Sequence[str], others: Sequence[str]) -> list[bool]:
    """Return, for each text, whether it nearly repeats one of ``others``; see `are_alike`.

    Guarantees
    ----------
    The result is that of comparing every pair (test_every_pair_that_is_alike_is_found).
    """
    runs, known = [list(map(runs_of, part)) for part in (texts, others)]
    rarity = Counter(run for one in (*runs, *known) for run in one)
    by_run: dict[str, list[int]] = defaultdict(list)
    by_rare_run: dict[str, list[int]] = defaultdict(list)
    for i, one in enumerate(known):
        for run in one:
            by_run[run].append(i)
        for run in _rarest(one, rarity):
            by_rare_run[run].append(i)
    found = []
    for one in runs:
        # the shorter of two texts that are alike has one of its rarest runs in common with the longer one
        candidates = {i for run in _rarest(one, rarity) for i in by_run.get(run, ())}
        candidates |= {i for run in one for i in by_rare_run.get(run, ())}
        found.append(any(are_alike(one, known[i]) for i in candidates))
    return found


def runs_of(text: str) -> Runs:
    """Return the runs of characters of a text, without its case, white space and punctuation."""
    words = "".join(c if c.isalnum() else " " for c in plain(text)).split()
    # a text of signs alone, such as an emoticon, is compared as it is
    padded = f" {' '.join(words)} " if words else plain(text)
    return frozenset(padded[i : i + RUN] for i in range(max(1, len(padded) - RUN + 1)))


def are_alike(a: Runs, b: Runs) -> bool:
    """Return whether one of two texts nearly repeats or holds the other.

    They repeat each other if they differ in case, white space and punctuation alone, or if at least the share `ALIKE`
    of the runs of either is in both. The longer one holds the shorter one, as a quotation does, if it has the share
    `WITHIN` of its runs. A shorter text of fewer than `FEWEST` runs is not looked for, nor is one in a text of more
    than `MOST_TIMES` its runs.

    Guarantees
    ----------
    Of the 437,580 pairs of different texts in the embedded corpus none is alike; the largest share of a text within
    another one is .62 (test_no_two_texts_of_the_corpus_are_alike). In ten of them that are joined, none of the others
    is found (test_a_long_text_does_not_swallow_the_others).
    """
    shared, fewer, more = len(a & b), min(len(a), len(b)), max(len(a), len(b))
    if shared >= ALIKE * (fewer + more - shared):
        return True
    return shared >= WITHIN * fewer and fewer >= FEWEST and more <= MOST_TIMES * fewer


def _rarest(runs: Runs, rarity: Counter[str]) -> list[str]:
    """Return so many of the rarest runs that every text with the share `ALIKE` of all of them has one of these."""
    least = math.ceil(ALIKE * len(runs))
    return sorted(runs, key=lambda run: (rarity[run], run))[: len(runs) - least + 1]
