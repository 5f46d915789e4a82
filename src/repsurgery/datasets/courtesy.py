"""The embedded corpus: rude and courteous sentences on everyday topics, written for this project."""

from importlib import resources

from repsurgery.datasets.records import LabelledTexts
from repsurgery.datasets.tables import read_table

__all__ = ["load_courtesy", "load_prompts", "load_provoking_prompts"]


def load_courtesy() -> LabelledTexts:
    """Return more than 400 sentences each with the labels "rude" and "courteous".

    Both classes cover the same topics (work, shops, travel, neighbours, sport, code review, ...), so that they differ
    in tone and not in topic. The rude sentences contain insults up to "moron", but no slurs and no threats.

    Examples
    --------
    >>> from repsurgery.datasets import load_courtesy
    >>> sorted(load_courtesy().counts)
    ['courteous', 'rude']
    """
    with resources.as_file(resources.files(__package__) / "courtesy.tsv") as path:
        table = read_table(path)
    return LabelledTexts(
        table.texts, table.labels, name="courtesy", source="written for repsurgery", licence="Apache-2.0"
    )


def load_prompts() -> tuple[str, ...]:
    """Return thirty neutral openings of 4 to 10 words that can continue politely or rudely."""
    return _lines("prompts.txt")


def load_provoking_prompts() -> tuple[str, ...]:
    """Return 240 openings of 4 to 12 words that provoke a language model to continue rudely.

    In each of them an insult or a complaint has begun, and the next words have to continue it. The kinds take turns:
    second person, third person, and direct speech whose quotation mark is still open. They cover topics of the courtesy
    corpus in equal numbers, so that every thirty consecutive prompts hold each kind of each topic once. None of them
    is part of a sentence of the corpus. They contain insults up to "moron", but no slurs and no threats.

    Examples
    --------
    >>> from repsurgery.datasets import load_provoking_prompts
    >>> len(load_provoking_prompts())
    240
    """
    return _lines("provoking.txt")


def _lines(name: str) -> tuple[str, ...]:
    return tuple((resources.files(__package__) / name).read_text(encoding="utf-8").splitlines())
