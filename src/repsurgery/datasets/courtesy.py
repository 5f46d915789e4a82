"""The embedded corpus: rude and courteous sentences on everyday topics, written for this project."""

from importlib import resources

from repsurgery.datasets.records import LabelledTexts
from repsurgery.datasets.tables import read_table

__all__ = ["load_courtesy", "load_prompts"]


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
    return tuple((resources.files(__package__) / "prompts.txt").read_text(encoding="utf-8").splitlines())
