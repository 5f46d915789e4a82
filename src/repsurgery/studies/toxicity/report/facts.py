"""How a toxicity study was made (texts, prompts, scorers, models, options), and one line of summary for each study."""

from collections.abc import Sequence

from repsurgery.studies.common.report.numbers import fact, lowers, word
from repsurgery.studies.common.report.sections import distinctions
from repsurgery.studies.common.report.tables import Column, Table, pairs_table, table_of
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.columns import (
    CHOICES,
    EMT,
    NAME,
    WORD_PERPLEXITY,
    choice_column,
    leading,
    measure_named,
)
from repsurgery.studies.toxicity.report.damage import DAMAGED, usable
from repsurgery.studies.toxicity.report.significance import adjusted_toxicity, toxicity_with_tests

__all__ = ["toxicity_fact_tables", "toxicity_summary_table"]


def toxicity_summary_table(records: Sequence[ToxicityRecord], *, first: int = 1) -> Table:
    """Return one row for each study: what it is, its toxicity before and at its lowest; numbers start at ``first``."""
    headings = (
        "study",
        "data",
        "model",
        "preset",
        "prompts",
        "scorer",
        "expected max toxicity: base → lowest usable",
        "perplexity",
        "WikiText per word",
        "differs in",
    )
    rows = tuple(
        (str(i), *_summary(adjusted_toxicity(toxicity_with_tests(record))), options or "–")
        for i, (record, options) in enumerate(
            zip(records, distinctions(records, lambda record: record.model), strict=True), first
        )
    )
    caption = (
        "Lowest usable: the smallest expected max toxicity by the leading scorer among the configurations that lower "
        "it significantly (Holm's p-value over the configurations of the study is at most .05) and did not damage the "
        f"model, which at most multiply a perplexity by {DAMAGED:g}. The two perplexities are those of the base and of "
        "that configuration."
    )
    return Table("Summary of toxicity", headings, rows, caption, keys=6)


def _summary(record: ToxicityRecord) -> tuple[str, ...]:
    names = (record.data.get("name"), record.model.get("name"), record.spec.get("preset"), record.prompts.get("count"))
    return (*map(word, names), leading(record) or "–", *_lowest(record))


def _lowest(record: ToxicityRecord) -> tuple[str, str, str]:
    key = measure_named(EMT, leading(record)).key
    base = record.configured("base")
    if base is None or key not in base.measures:
        return "–", "–", "–"
    lower = [c for c in usable(record) if key in c.measures and lowers(c.differences.get(key))]
    shown = [base, *sorted(lower, key=lambda c: c.measures[key].value)[:1]]

    def both(name: str) -> str:
        measure = measure_named(name, leading(record))
        if not all(measure.key in c.measures for c in shown):
            return "–"
        return " → ".join(measure.value(interval=False).cell(c) for c in shown)

    found = shown[-1].name if lower or usable(record) == [base] else "no difference seen"
    return f"{both(EMT)} ({found})", both("perplexity"), both(WORD_PERPLEXITY)


def toxicity_fact_tables(record: ToxicityRecord) -> list[Table]:
    """Return how the study was made, for readers who want to repeat it."""
    data = {name: value for name, value in record.data.items() if name not in ("counts", "cautions")}
    counts = record.data.get("counts", {})
    tables = [
        _scorers_table(record),
        _choices_table(record),
        _facts_table(record),
        pairs_table("Steered model", record.model),
        pairs_table("Labelled texts", data),
        pairs_table("Texts by label", {name: f"{n:,}" if isinstance(n, int) else n for name, n in counts.items()}),
        pairs_table("Prompts", record.prompts),
        pairs_table("Fluency model", record.fluency),
        pairs_table("WikiText", record.wikitext),
        pairs_table("Options", record.spec),
        pairs_table("Environment", record.environment),
        pairs_table("Seconds", {step: f"{seconds:.1f}" for step, seconds in record.seconds.items()}),
    ]
    return [table for table in tables if table is not None]


def _scorers_table(record: ToxicityRecord) -> Table | None:
    if not record.scorers:
        return None
    names = dict.fromkeys(name for facts in record.scorers.values() for name in facts)
    rows = tuple((name, *(fact(facts.get(name)) for facts in record.scorers.values())) for name in names)
    caption = (
        "auc, spearman: agreement with archived Perspective scores, where they are available; texts: on how many texts."
    )
    return Table("Scorers", ("scorer", *record.scorers), rows, caption, keys=len(record.scorers) + 1)


def _choices_table(record: ToxicityRecord) -> Table | None:
    names = dict.fromkeys(name for c in record.configurations for name in c.choices)
    order = [*(name for name in CHOICES if name in names), *(name for name in names if name not in CHOICES)]
    return table_of("Choices", NAME, [*map(choice_column, order)], record.configurations)


def _facts_table(record: ToxicityRecord) -> Table | None:
    def facts(name: str) -> Column[Configured]:
        return Column(name, lambda c: fact(c.facts.get(name)))

    names = dict.fromkeys(name for c in record.configurations for name in c.facts)
    return table_of("Facts by configuration", NAME, [*map(facts, names)], record.configurations)
