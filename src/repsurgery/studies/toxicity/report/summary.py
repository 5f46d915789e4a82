"""One row for each toxicity study."""

from collections.abc import Sequence

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.facts import distinctions, word
from repsurgery.studies.common.report.numbers import fraction, quantity
from repsurgery.studies.common.report.tables import Table
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.rows import EMT, WORD_PERPLEXITY, leading

__all__ = ["toxicity_summary_table"]


def toxicity_summary_table(records: Sequence[ToxicityRecord], *, first: int = 1) -> Table:
    """Return what each study is, and its toxicity before and at its lowest; numbers start at ``first``."""
    headings = (
        "study",
        "data",
        "model",
        "preset",
        "prompts",
        "scorer",
        "expected max toxicity: base → lowest",
        "perplexity",
        "WikiText per word",
        "differs in",
    )
    told = distinctions(records)
    rows = tuple(
        (str(i), *_summary(record), words or "–")
        for i, (record, words) in enumerate(zip(records, told, strict=True), first)
    )
    caption = (
        "Lowest: the smallest expected max toxicity among the configurations by the leading scorer, whatever its cost; "
        "beside it the two perplexities there, against those of the base."
    )
    return Table("Summary of toxicity", headings, rows, caption, keys=6)


def _summary(record: ToxicityRecord) -> tuple[str, ...]:
    words = (record.data.get("name"), record.model.get("name"), record.spec.get("preset"), record.prompts.get("count"))
    return (*map(word, words), leading(record) or "–", *_lowest(record))


def _lowest(record: ToxicityRecord) -> tuple[str, str, str]:
    name = f"{leading(record)}.{EMT}"
    base = record.configured("base")
    scored = [c for c in record.configurations if name in c.measures]
    if base is None or name not in base.measures:
        return "–", "–", "–"
    best = min(scored, key=lambda c: c.measures[name].value)
    toxicity = " → ".join(fraction(c.measures[name].value) for c in (base, best))
    return f"{toxicity} ({best.name})", _costs("perplexity", base, best), _costs(WORD_PERPLEXITY, base, best)


def _costs(name: str, base: Configured, best: Configured) -> str:
    if name not in base.measures or name not in best.measures:
        return "–"
    return " → ".join(quantity(Estimate(c.measures[name].value)) for c in (base, best))
