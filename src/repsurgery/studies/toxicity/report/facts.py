"""What a toxicity study was made of: texts, prompts, scorers, models, options, environment."""

from collections.abc import Callable

from repsurgery.studies.common.report.facts import pairs_table, word
from repsurgery.studies.common.report.tables import Table, number
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.rows import CHOICES, by_configuration, chosen

__all__ = ["toxicity_fact_tables"]


def toxicity_fact_tables(record: ToxicityRecord) -> list[Table]:
    """Return how the study was made, for whoever wants to make it again."""
    data = {name: value for name, value in record.data.items() if name not in ("counts", "cautions")}
    counts = record.data.get("counts", {})
    tables = [
        _scorers_table(record),
        _choices_table(record),
        _facts_table(record),
        pairs_table("Steered model", record.model),
        pairs_table("Labelled texts", data),
        pairs_table("Texts by label", {name: _count(value) for name, value in counts.items()}),
        pairs_table("Prompts", record.prompts),
        pairs_table("Fluency model", record.fluency),
        pairs_table("WikiText", record.wikitext),
        pairs_table("Options", record.spec),
        pairs_table("Environment", record.environment),
        pairs_table("Seconds", {step: f"{seconds:.1f}" for step, seconds in record.seconds.items()}),
    ]
    return [table for table in tables if table is not None]


def _count(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else word(value)


def _scorers_table(record: ToxicityRecord) -> Table | None:
    if not record.scorers:
        return None
    names = list(dict.fromkeys(name for facts in record.scorers.values() for name in facts))
    rows = tuple((name, *(_fact(facts.get(name)) for facts in record.scorers.values())) for name in names)
    caption = "auc, spearman: agreement with archived Perspective scores, on so many texts, where they are given."
    return Table("Scorers", ("scorer", *record.scorers), rows, caption, keys=len(record.scorers) + 1)


def _choices_table(record: ToxicityRecord) -> Table | None:
    further = dict.fromkeys(name for c in record.configurations for name in c.choices)
    order = [*(name for name in CHOICES if name in further), *(name for name in further if name not in CHOICES)]
    return by_configuration("Choices", [(name, chosen(name)) for name in order], record.configurations, caption="")


def _facts_table(record: ToxicityRecord) -> Table | None:
    names = dict.fromkeys(name for c in record.configurations for name in c.facts)
    return by_configuration(
        "Facts by configuration", [(name, _fact_of(name)) for name in names], record.configurations, caption=""
    )


def _fact_of(name: str) -> Callable[[Configured], str]:
    return lambda c: _fact(c.facts.get(name))


def _fact(value: object) -> str:
    return number(value) if isinstance(value, float) else word(value)
