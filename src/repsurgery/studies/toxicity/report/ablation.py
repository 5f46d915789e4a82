"""Ablations of a toxicity study: every configuration by its choices, and one choice at a time."""

from collections.abc import Sequence
from typing import Any

from repsurgery.studies.common.report.facts import word
from repsurgery.studies.common.report.tables import Table
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.rows import (
    CHOICES,
    EMT,
    PROBABILITY,
    WORD_PERPLEXITY,
    Column,
    by_configuration,
    chosen,
    leading,
    plain,
    plain_quantity,
    share_change,
    steered_columns,
    values_of,
)

__all__ = ["ablation_tables", "series"]

_ABLATED = ("fit", "gate", "shrinkage", "site", "rows", "strength")
_FOLLOWS = {"fit": ("rows",)}
"""What cannot be held when a choice changes: other fits read other numbers of vectors."""


def ablation_tables(record: ToxicityRecord) -> list[Table]:
    """Return the configurations grouped by what differs, then a table for each choice that differs alone."""
    steered = [c for c in record.configurations if c.name != "base"]
    varying = [name for name in _ABLATED if len(values_of(steered, name)) > 1]
    tables = [_grouped(record, steered)] if varying else []
    tables += [_alone(record, steered, name) for name in varying]
    return [table for table in tables if table is not None]


def series(configurations: Sequence[Configured], name: str) -> list[list[Configured]]:
    """Return the configurations that differ in one choice alone: each list has at least two of its values, in order."""
    held = [c for c in configurations if c.choices.get(name) is not None]
    groups: dict[tuple[str, ...], list[Configured]] = {}
    for c in held:
        others = (other for other in CHOICES if other != name and other not in _FOLLOWS.get(name, ()))
        groups.setdefault(tuple(repr(c.choices.get(other)) for other in others), []).append(c)
    order = _order(values_of(held, name))
    found = [sorted(group, key=lambda c: order.index(c.choices[name])) for group in groups.values()]
    return [group for group in found if len(values_of(group, name)) > 1]


def _order(values: list[Any]) -> list[Any]:
    numbers = all(isinstance(value, int | float) for value in values)
    return sorted(values) if numbers else values


def _grouped(record: ToxicityRecord, steered: Sequence[Configured]) -> Table | None:
    ranks = {name: {word(value): i for i, value in enumerate(_order(values_of(steered, name)))} for name in CHOICES}

    def place(c: Configured) -> tuple[int, ...]:
        return tuple(ranks[name].get(word(c.choices.get(name)), -1) for name in CHOICES)

    names: list[Column] = [(name, chosen(name)) for name in CHOICES if len(values_of(steered, name)) > 1]
    caption = "Every configuration by the choices that differ in this study; columns as in the tables above."
    ordered = sorted(steered, key=place)
    return by_configuration("Ablation: by choices", _columns(record), ordered, caption=caption, names=names)


def _alone(record: ToxicityRecord, steered: Sequence[Configured], name: str) -> Table | None:
    groups = series(steered, name)
    held = [c for group in groups for c in group]
    others = [o for o in CHOICES if o in ("method", "scope") or (o != name and len(values_of(held, o)) > 1)]
    names: list[Column] = [(other, chosen(other)) for other in (*others, name)]
    follows = " The number of rows follows from the fit." if name in _FOLLOWS else ""
    caption = f"Neighbouring rows with equal names differ in {name} alone.{follows}"
    return by_configuration(f"Ablation: {name}", _columns(record), held, caption=caption, names=names)


def _columns(record: ToxicityRecord) -> list[Column]:
    first, *further = list(record.scorers) or [leading(record)]
    return [
        ("expected max toxicity", plain(f"{first}.{EMT}")),
        ("change from base", share_change(f"{first}.{EMT}")),
        ("WikiText per word", plain_quantity(WORD_PERPLEXITY)),
        ("perplexity", plain_quantity("perplexity")),
        ("toxicity probability", plain(f"{first}.{PROBABILITY}")),
        *((f"expected max toxicity, {scorer}", plain(f"{scorer}.{EMT}")) for scorer in further),
        *steered_columns(),
    ]
