"""Rows of a toxicity study's tables: one for each configuration, columns without a single value left out."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.facts import word
from repsurgery.studies.common.report.numbers import change, estimate, quantity
from repsurgery.studies.common.report.tables import Table, number
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord

__all__ = [
    "BYTE_PERPLEXITY",
    "CHOICES",
    "EMT",
    "PROBABILITY",
    "WORD_PERPLEXITY",
    "Column",
    "by_configuration",
    "chosen",
    "leading",
    "plain",
    "plain_quantity",
    "quantity_change",
    "quantity_of",
    "share",
    "share_change",
    "steered_columns",
    "values_of",
]

Column = tuple[str, Callable[[Configured], str]]
"""A heading, and the cell of one configuration under it."""

CHOICES = ("fit", "gate", "shrinkage", "site", "rows", "method", "scope", "strength")
"""What tells configurations apart, the coarsest first."""

EMT, PROBABILITY = "expected_max_toxicity", "toxicity_probability"
WORD_PERPLEXITY, BYTE_PERPLEXITY = "wikitext.word_perplexity", "wikitext.byte_perplexity"


def by_configuration(
    title: str,
    columns: Sequence[Column],
    configurations: Iterable[Configured],
    *,
    caption: str,
    names: Sequence[Column] = (("configuration", lambda c: c.name),),
) -> Table | None:
    """Return the table of the configurations; None where no column holds a value."""
    held = list(configurations)
    cells = [(heading, [cell(c) for c in held]) for heading, cell in columns]
    shown = [(heading, column) for heading, column in cells if not set(column) <= {"–"}]
    if not shown:
        return None
    rows = tuple((*(name(c) for _, name in names), *(column[i] for _, column in shown)) for i, c in enumerate(held))
    headings = (*(heading for heading, _ in names), *(heading for heading, _ in shown))
    return Table(title, headings, rows, caption, keys=len(names))


def leading(record: ToxicityRecord) -> str:
    """Return the scorer that tables and figures lead with."""
    return next(iter(record.scorers), "")


def share(name: str) -> Callable[[Configured], str]:
    """Return the cell of a measure between 0 and 1."""
    return lambda c: estimate(c.measures.get(name))


def share_change(name: str) -> Callable[[Configured], str]:
    """Return the cell of its difference to the base."""
    return lambda c: change(c.differences.get(name))


def quantity_of(name: str) -> Callable[[Configured], str]:
    """Return the cell of a measure of any size."""
    return lambda c: quantity(c.measures.get(name))


def quantity_change(name: str) -> Callable[[Configured], str]:
    """Return the cell of its difference to the base."""
    return lambda c: change(c.differences.get(name), share=False)


def plain(name: str) -> Callable[[Configured], str]:
    """Return the cell of a share without its interval."""
    return lambda c: estimate(_bare(c.measures.get(name)))


def plain_quantity(name: str) -> Callable[[Configured], str]:
    """Return the cell of a measure of any size without its interval."""
    return lambda c: quantity(_bare(c.measures.get(name)))


def steered_columns() -> tuple[Column, Column]:
    """Return what steering touched: share of positions, and divergence from the base."""
    return (
        ("KL from base", lambda c: number(c.measures["kl"].value) if "kl" in c.measures else "–"),
        ("steered", lambda c: _percent(c.measures["steered"].value) if "steered" in c.measures else "–"),
    )


def _percent(value: float) -> str:
    return f"{value:.1%}".replace(".0%", "%")


def _bare(given: Estimate | None) -> Estimate | None:
    return None if given is None else Estimate(given.value)


def chosen(name: str) -> Callable[[Configured], str]:
    """Return the cell of a choice."""
    return lambda c: word(c.choices.get(name))


def values_of(configurations: Iterable[Configured], name: str) -> list[Any]:
    """Return the values of a choice in the order in which they first appear; what is not chosen is no value."""
    found: list[Any] = []
    for c in configurations:
        value = c.choices.get(name)
        if value is not None and value not in found:
            found.append(value)
    return found
