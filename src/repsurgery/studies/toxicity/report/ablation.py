"""Ablations of a toxicity study: every configuration by its choices, and one choice at a time."""

from collections.abc import Sequence
from typing import Any

from repsurgery.studies.common.report.numbers import word
from repsurgery.studies.common.report.tables import Column, Measured, Table, table_of
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.columns import (
    CHOICES,
    EMT,
    PROBABILITY,
    WORD_PERPLEXITY,
    choice_column,
    leading,
    measure_named,
    values_of,
)
from repsurgery.studies.toxicity.report.rivals import is_rival

__all__ = ["ablation_tables", "series"]

_ABLATED = ("fit", "credit", "rounds", "gate", "shrinkage", "alpha", "site", "rows", "strength", "kl")
_FOLLOWS = {"fit": ("rows",)}
"""Choices that cannot stay the same when another one changes: other fits read other numbers of vectors."""


def ablation_tables(record: ToxicityRecord) -> list[Table]:
    """Return the configurations grouped by their choices, then one table for each choice that differs alone."""
    steered = [c for c in record.configurations if c.name != "base" and not is_rival(c)]
    varying = [name for name in _ABLATED if len(values_of(steered, name)) > 1]
    tables = [_grouped(record, steered)] if varying else []
    tables += [_alone(record, steered, name) for name in varying]
    return [table for table in tables if table is not None]


def series(configurations: Sequence[Configured], name: str) -> list[list[Configured]]:
    """Return the groups of configurations that differ in one choice alone, ordered by that choice."""
    chosen = [c for c in configurations if c.choices.get(name) is not None]
    others = [other for other in CHOICES if other != name and other not in _FOLLOWS.get(name, ())]
    groups: dict[tuple[str, ...], list[Configured]] = {}
    for c in chosen:
        groups.setdefault(tuple(repr(c.choices.get(other)) for other in others), []).append(c)
    order = _order(values_of(chosen, name))
    ordered = [sorted(group, key=lambda c: order.index(c.choices[name])) for group in groups.values()]
    return [group for group in ordered if len(values_of(group, name)) > 1]


def _order(values: list[Any]) -> list[Any]:
    return sorted(values) if all(isinstance(value, int | float) for value in values) else values


def _grouped(record: ToxicityRecord, steered: Sequence[Configured]) -> Table | None:
    ranks = {name: {word(value): i for i, value in enumerate(_order(values_of(steered, name)))} for name in CHOICES}

    def rank(c: Configured) -> tuple[int, ...]:
        return tuple(ranks[name].get(word(c.choices.get(name)), -1) for name in CHOICES)

    names = [choice_column(name) for name in CHOICES if len(values_of(steered, name)) > 1]
    caption = "Every configuration by the choices that differ in this study; columns as in the tables above."
    ordered = sorted(steered, key=rank)
    return table_of("Ablation: by choices", names, _columns(record), ordered, caption)


def _alone(record: ToxicityRecord, steered: Sequence[Configured], name: str) -> Table | None:
    rows = [c for group in series(steered, name) for c in group]
    others = [o for o in CHOICES if o in ("method", "scope") or (o != name and len(values_of(rows, o)) > 1)]
    names = [choice_column(other) for other in (*others, name)]
    follows = " The number of rows follows from the fit." if name in _FOLLOWS else ""
    caption = f"Neighbouring rows with equal names differ in {name} alone.{follows}"
    return table_of(f"Ablation: {name}", names, _columns(record), rows, caption)


def _columns(record: ToxicityRecord) -> list[Column[Measured]]:
    first, *further = list(record.scorers) or [leading(record)]
    toxicity = measure_named(EMT, first)
    costs = [measure_named(name, first) for name in (WORD_PERPLEXITY, "perplexity", PROBABILITY)]
    others = [
        measure_named(EMT, scorer).value(heading=f"{toxicity.heading}, {scorer}", interval=False) for scorer in further
    ]
    return [
        toxicity.value(interval=False),
        toxicity.difference(),
        *(measure.value(interval=False) for measure in costs),
        *others,
        *(measure_named(name, first).value() for name in ("kl", "steered")),
    ]
