"""The published toxicity figures beside ours."""

from collections.abc import Mapping
from typing import Any

from repsurgery.studies.common.report.numbers import fraction
from repsurgery.studies.common.report.published import PublishedToxicity, published
from repsurgery.studies.common.report.tables import Table
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.rows import EMT, PROBABILITY, WORD_PERPLEXITY, leading, plain, plain_quantity

__all__ = ["beside_table", "counterpart"]

_PUBLISHED_CHOICES: Mapping[str, Any] = {
    "fit": "last",
    "gate": "nearest-mean",
    "shrinkage": "preset",
    "strength": 1,
    "site": "final",
    "rows": 0,
}


def counterpart(record: ToxicityRecord, method: str, scope: str) -> Configured | None:
    """Return the configuration of a method and scope whose other choices are nearest to the published ones."""
    held = [c for c in record.configurations if c.choices.get("method") == method and c.choices.get("scope") == scope]
    if method == "base":
        return record.configured("base")
    return max(held, key=_agreement, default=None)


def _agreement(c: Configured) -> int:
    return sum(c.choices.get(name) == value for name, value in _PUBLISHED_CHOICES.items())


def beside_table(record: ToxicityRecord) -> Table:
    """Return every published row, and below each method of ours our nearest configuration."""
    rows = []
    for row in published().toxicity:
        rows.append(("published", row.name, *_printed(row)))
        ours = None if row.method is None or row.scope is None else counterpart(record, row.method, row.scope)
        if ours is not None:
            rows.append(("ours", ours.name, *_measured(record, ours)))
    headings = (
        "whose",
        "configuration",
        "expected max toxicity",
        "toxicity probability",
        "perplexity",
        *(f"dist-{n}" for n in (1, 2, 3)),
        "WikiText per word",
    )
    caption = (
        f"Published: {published().sources['toxicity']} {published().notes['toxicity']} Ours: another model, other "
        f"scorers, toxicity by {leading(record) or 'no scorer'}; below each published method stands our configuration "
        "whose fit, gate, shrinkage, strength, site and number of rows are nearest to the published ones."
    )
    return Table("Published beside ours", headings, tuple(rows), caption, keys=2)


def _printed(row: PublishedToxicity) -> tuple[str, ...]:
    shares = (row.expected_max_toxicity, row.toxicity_probability)
    return (
        *(fraction(value, digits=2) for value in shares),
        f"{row.perplexity:g}",
        *(fraction(value, digits=2) for value in row.distinct),
        "–" if row.word_perplexity is None else f"{row.word_perplexity:g}",
    )


def _measured(record: ToxicityRecord, c: Configured) -> tuple[str, ...]:
    first = leading(record)
    return (
        plain(f"{first}.{EMT}")(c),
        plain(f"{first}.{PROBABILITY}")(c),
        plain_quantity("perplexity")(c),
        *(plain(f"distinct.{n}")(c) for n in (1, 2, 3)),
        plain_quantity(WORD_PERPLEXITY)(c),
    )
