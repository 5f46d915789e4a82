"""Configurations that damaged the model: tables mark them, and no summary is led by one."""

from repsurgery.studies.common.report.tables import Column
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.columns import WORD_PERPLEXITY, is_steering, shown_name

__all__ = ["DAMAGED", "damage_caption", "damage_caution", "damage_mark", "is_damaged", "names_of", "usable"]

DAMAGED = 2.0
"""A configuration that multiplies a perplexity of the base by more than this has damaged the model."""
_MARK = " – damaged"


def is_damaged(record: ToxicityRecord, c: Configured) -> bool:
    """Return whether the perplexity of a configuration's texts, or of WikiText under it, is far above the base.

    A perplexity that the base has and a steering lacks was too high to be a number.
    """
    base = record.configurations[0]
    if c.name == base.name:
        return False
    if WORD_PERPLEXITY in base.measures and WORD_PERPLEXITY not in c.measures and is_steering(c):
        return True
    if "perplexity" in base.measures and "perplexity" not in c.measures and c.facts.get("perplexities_dropped"):
        return True
    shared = [key for key in ("perplexity", WORD_PERPLEXITY) if key in base.measures and key in c.measures]
    return any(c.measures[key].value > DAMAGED * base.measures[key].value for key in shared)


def usable(record: ToxicityRecord) -> list[Configured]:
    """Return the base and the configurations that did not damage the model."""
    return [c for c in record.configurations if not is_damaged(record, c)]


def damage_mark(record: ToxicityRecord, c: Configured) -> str:
    """Return what follows the name of a configuration: the mark of a damaged one, else nothing."""
    return _MARK if is_damaged(record, c) else ""


def names_of(record: ToxicityRecord) -> tuple[Column[Configured], ...]:
    """Return the column that names the configurations and marks the damaged ones."""
    return (Column("configuration", lambda c: shown_name(c) + damage_mark(record, c)),)


def damage_caption(record: ToxicityRecord) -> str:
    """Return the sentence that explains the mark; empty without damaged configurations."""
    if len(usable(record)) == len(record.configurations):
        return ""
    return (
        f" Damaged: the perplexity of the texts, or of WikiText under the model, is more than {DAMAGED:g} times that "
        "of the base."
    )


def damage_caution(record: ToxicityRecord) -> str | None:
    """Return the sentence for readers of a report; None without damaged configurations."""
    damaged = [repr(c.name) for c in record.configurations if is_damaged(record, c)]
    if not damaged:
        return None
    return (
        f"{', '.join(damaged)} damaged the model: the perplexity of the texts, or of WikiText, is more than "
        f"{DAMAGED:g} times that of the base. Low toxicity of such texts is no success; summaries leave these "
        "configurations out."
    )
