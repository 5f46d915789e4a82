"""What a fairness study was made of: data, options, rows, environment."""

from collections.abc import Mapping, Sequence
from typing import Any

from repsurgery.studies.common.report.facts import distinctions, pairs_table, word
from repsurgery.studies.common.report.numbers import fraction
from repsurgery.studies.common.report.tables import Table, number
from repsurgery.studies.fairness.record import Setting, StudyRecord
from repsurgery.studies.fairness.report.rows import by_method, is_sweep, key, lead, measured_as, steered

__all__ = ["fact_tables", "summary_table"]


def summary_table(records: Sequence[StudyRecord]) -> Table:
    """Return one row for each study: what it is, and its TPR gap before and at its lowest."""
    headings = ("study", "experiment", "data", "encoder", "preset", "TPR gap: base → lowest", "accuracy", "differs in")
    told = distinctions(records)
    rows = tuple(
        (str(i), *_summary(record, words)) for i, (record, words) in enumerate(zip(records, told, strict=True), 1)
    )
    caption = (
        "Lowest: the smallest TPR gap RMS on the test split among the methods that change representations, with the "
        "accuracy beside that of the base; of studies with several ratios, at the largest."
    )
    return Table("Summary", headings, rows, caption, keys=5)


def _summary(record: StudyRecord, differs: str) -> tuple[str, ...]:
    words = (record.experiment, record.data.get("name"), record.encoder.get("name"), record.spec.get("preset"))
    # what differs may be long, so it comes last and never pushes the figures out of sight
    return (*("–" if word is None else str(word) for word in words), *_lowest(record), differs or "–")


def _lowest(record: StudyRecord) -> tuple[str, str]:
    setting = max(record.settings, key=lambda s: s.ratio or 0.0, default=None)
    base = None if setting is None else setting.method("base")
    gap, accuracy = measured_as(record, "tpr_gap"), "test.accuracy"
    if setting is None or base is None or gap not in base.measures:
        return "–", "–"
    best = min((r for r in steered(setting) if gap in r.measures), key=lambda r: r.measures[gap].value)
    where = "" if setting.ratio is None else f", ratio {fraction(setting.ratio, digits=2)}"
    gaps = [fraction(r.measures[gap].value) for r in (base, best)]
    shares = [fraction(r.measures[accuracy].value) if accuracy in r.measures else "–" for r in (base, best)]
    return f"{' → '.join(gaps)} ({best.method}{where})", " → ".join(shares)


def fact_tables(record: StudyRecord) -> list[Table]:
    """Return how the study was made, for whoever wants to make it again."""
    tables = [
        _rows_table(record),
        _counts_table(record),
        _fits_table(record),
        pairs_table("Data", {name: value for name, value in record.data.items() if name not in ("counts", "cautions")}),
        pairs_table("Encoder", record.encoder),
        pairs_table("Options", record.spec),
        pairs_table("Environment", record.environment),
        pairs_table("Seconds", {step: f"{seconds:.1f}" for step, seconds in record.seconds.items()}),
    ]
    return [table for table in tables if table is not None]


def _rows_table(record: StudyRecord) -> Table | None:
    splits = list(dict.fromkeys(split for setting in record.settings for split in setting.sizes))
    shares = list(dict.fromkeys(name for setting in record.settings for name in setting.concept))
    if not splits and not shares:
        return None
    headings = (*(lead(record) or ("setting",)), *(f"{s} rows" for s in splits), *map(_share, shares), "chance")
    rows = tuple(_rows(record, setting, splits, shares) for setting in record.settings)
    caption = (
        "Accuracy of the concept classifier and share of the majority, by split. Chance: share of same-concept "
        "neighbours that an uninformative representation would show."
    )
    return Table("Rows and concept", headings, rows, caption)


def _share(name: str) -> str:
    split, _, what = name.partition(".")
    return f"{what or 'value'}, {split}"


def _rows(record: StudyRecord, setting: Setting, splits: list[str], shares: list[str]) -> tuple[str, ...]:
    sizes = (f"{setting.sizes[s]:,}" if s in setting.sizes else "–" for s in splits)
    return (
        *(key(record, setting) or ("all",)),
        *sizes,
        *(fraction(setting.concept.get(name)) for name in shares),
        fraction(setting.chance),
    )


def _counts_table(record: StudyRecord) -> Table | None:
    counts = record.data.get("counts")
    if not counts or not all(isinstance(row, Mapping) for row in counts.values()):
        return pairs_table("Counts", counts) if counts else None
    concepts = list(dict.fromkeys(concept for row in counts.values() for concept in row))
    rows = tuple((label, *(f"{row.get(concept, 0):,}" for concept in concepts)) for label, row in counts.items())
    return Table("Texts by class and concept", ("class", *concepts), rows)


def _fits_table(record: StudyRecord) -> Table | None:
    caption = "What each method's fit and its classifier left to tell."
    names = dict.fromkeys(name for s in record.settings for r in s.methods for name in r.facts if not is_sweep(r))
    columns = [(name, lambda _, result, name=name: _fact(result.facts.get(name))) for name in names]
    return by_method(record, "Fits", columns, caption=caption)


def _fact(value: Any) -> str:
    return number(value) if isinstance(value, float) else word(value)
