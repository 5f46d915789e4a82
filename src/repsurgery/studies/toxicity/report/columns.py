"""The columns of a toxicity study's tables, whose rows are the configurations of the study."""

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from repsurgery.studies.common.report.numbers import word
from repsurgery.studies.common.report.tables import Column, Measure
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord

__all__ = [
    "CHOICES",
    "EMT",
    "MEASURES",
    "NAME",
    "PROBABILITY",
    "TUNED",
    "WORD_PERPLEXITY",
    "choice_column",
    "is_rival",
    "is_steering",
    "leading",
    "measure_named",
    "measures_of",
    "shown_name",
    "toxicity_axis",
    "values_of",
]

EMT, PROBABILITY = "expected_max_toxicity", "toxicity_probability"
WORD_PERPLEXITY = "wikitext.word_perplexity"
TUNED = "tuned"

MEASURES = (
    Measure(f"{{scorer}}.{EMT}", "expected max toxicity", "toxicity", better="lower", change=True, published=EMT),
    Measure(
        f"{{scorer}}.{PROBABILITY}",
        "toxicity probability",
        "toxicity",
        better="lower",
        change=True,
        published=PROBABILITY,
    ),
    Measure("{scorer}.mean_toxicity", "mean toxicity", "mean", better="lower", change=True),
    Measure("perplexity", "perplexity", "cost", "quantity", better="lower", change=True, published="perplexity"),
    Measure("perplexity{judge}", "perplexity", "fluency", "quantity", better="lower", change=True),
    Measure("bits_per_character{judge}", "bits per character", "fluency", "number", better="lower", change=True),
    Measure("distinct.1", "dist-1", "diversity", better="higher", change=True, published="distinct.1"),
    Measure("distinct.2", "dist-2", "diversity", better="higher", change=True, published="distinct.2"),
    Measure("distinct.3", "dist-3", "diversity", better="higher", change=True, published="distinct.3"),
    Measure(WORD_PERPLEXITY, "WikiText per word", "cost", "quantity", better="lower", published="word_perplexity"),
    Measure("wikitext.byte_perplexity", "per byte", "cost", "quantity", better="lower"),
    Measure("kl", "KL from base", "cost", "number", better="lower"),
    Measure("kl.own", "KL, own texts", "cost", "number", better="lower"),
    Measure("steered", "steered", "cost", "percent"),
)
"""Every measure with the table that shows it; a new column is a new line here. `measures` computes the values."""


def shown_name(c: Configured) -> str:
    """Return the line of a configuration, in which a file has its name without folders and ending."""
    return re.sub(r"\bfile=(\S+)", lambda file: f"file={PurePath(file[1]).stem}", c.name)


NAME: tuple[Column[Configured], ...] = (Column("configuration", shown_name),)
"""The column that names the configurations."""

CHOICES = (
    *("fit", "credit", "rounds", "gate", "shrinkage", "alpha", "site", "rows", "method", "scope", "strength", "kl"),
    *("wikitext", "effort", "minutes"),
)
"""The choices that distinguish configurations, the most important first."""


def measures_of(scorer: str, *tables: str, judge: str = "") -> list[Measure]:
    """Return the measures that any of ``tables`` shows, in order: toxicity by ``scorer``, fluency by ``judge``.

    The first judge of a record is "", every other one has its name.
    """
    names = {"scorer": scorer, "judge": f".{judge}" if judge else ""}
    return [measure.of(**names) for measure in MEASURES if measure.table in tables]


def measure_named(name: str, scorer: str) -> Measure:
    """Return the measure whose key, without the scorer, is ``name``."""
    return next(m.of(scorer=scorer, judge="") for m in MEASURES if m.key.removeprefix("{scorer}.") == name)


def leading(record: ToxicityRecord) -> str:
    """Return the scorer that tables and figures show first; "" without scorers."""
    return next(iter(record.scorers), "")


def is_rival(c: Configured) -> bool:
    """Return whether a row is a rival: it has a method, but no scope, which every steering has or searches for."""
    return c.choices.get("method") not in (None, "base", TUNED) and "scope" not in c.choices


def is_steering(c: Configured) -> bool:
    """Return whether a row is an affine steering, tuned or not."""
    return c.choices.get("method") not in (None, "base") and not is_rival(c)


def choice_column(name: str) -> Column[Configured]:
    """Return the column of a choice."""
    return Column(name, lambda c: word(c.choices.get(name)))


def values_of(configurations: Iterable[Configured], name: str) -> list[Any]:
    """Return the values of a choice in the order of their first appearance, without None."""
    values: list[Any] = []
    for c in configurations:
        value = c.choices.get(name)
        if value is not None and value not in values:
            values.append(value)
    return values


def toxicity_axis(scorer: str) -> str:
    """Return what an axis of the expected maximum toxicity shows."""
    return f"highest toxicity of a prompt's texts, mean over prompts ({scorer})"
