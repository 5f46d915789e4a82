"""How a fairness study was made (data, options, rows, environment), and one line of summary for each study."""

from collections.abc import Mapping, Sequence

from repsurgery.studies.common.report.numbers import fact, fraction, lowers, word
from repsurgery.studies.common.report.sections import distinctions
from repsurgery.studies.common.report.tables import Column, Table, pairs_table, table_of
from repsurgery.studies.fairness.record import Setting, StudyRecord, is_sweep
from repsurgery.studies.fairness.report.columns import Row, by_method, measured_as, ratio_columns, steered
from repsurgery.studies.fairness.report.significance import adjusted_study, study_with_tests

__all__ = ["fact_tables", "summary_table"]


def summary_table(records: Sequence[StudyRecord], *, first: int = 1) -> Table:
    """Return one row for each study: what it is, its TPR gap before and at its lowest; numbers start at ``first``."""
    headings = ("study", "experiment", "data", "encoder", "preset", "TPR gap: base → lowest", "accuracy", "differs in")
    rows = tuple(
        (str(i), *_summary(adjusted_study(study_with_tests(record))), options or "–")
        for i, (record, options) in enumerate(
            zip(records, distinctions(records, lambda record: record.encoder), strict=True), first
        )
    )
    caption = (
        "Lowest: the smallest TPR gap RMS on the test split among the methods that change representations and lower "
        "the gap significantly (Holm's p-value over the rows of the study is at most .05), and the accuracy of that "
        "method beside that of the base; in studies with several ratios, at the largest ratio."
    )
    return Table("Summary", headings, rows, caption, keys=5)


def _summary(record: StudyRecord) -> tuple[str, ...]:
    names = (record.experiment, record.data.get("name"), record.encoder.get("name"), record.spec.get("preset"))
    return (*map(word, names), *_lowest(record))


def _lowest(record: StudyRecord) -> tuple[str, str]:
    setting = max(record.settings, key=lambda s: s.ratio or 0.0, default=None)
    base = None if setting is None else setting.method("base")
    gap, accuracy = measured_as(record, "tpr_gap"), measured_as(record, "accuracy")
    if setting is None or base is None or gap not in base.measures:
        return "–", "–"
    where = "" if setting.ratio is None else f", ratio {fraction(setting.ratio, digits=2)}"
    lower = [r for r in steered(setting) if gap in r.measures and lowers(r.differences.get(gap))]
    shown = [base, *sorted(lower, key=lambda r: r.measures[gap].value)[:1]]
    gaps = " → ".join(fraction(r.measures[gap].value) for r in shown)
    shares = " → ".join(fraction(r.measures[accuracy].value) if accuracy in r.measures else "–" for r in shown)
    return f"{gaps} ({shown[-1].method if lower else 'no difference seen'}{where})", shares


def fact_tables(record: StudyRecord) -> list[Table]:
    """Return how the study was made, for readers who want to repeat it."""
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
    def size(split: str) -> Column[Setting]:
        return Column(f"{split} rows", lambda s: f"{s.sizes[split]:,}" if split in s.sizes else "–")

    def share(name: str) -> Column[Setting]:
        split, _, what = name.partition(".")
        return Column(f"{what or 'value'}, {split}", lambda s: fraction(s.concept.get(name)))

    sizes = [size(split) for split in dict.fromkeys(split for s in record.settings for split in s.sizes)]
    shares = [share(name) for name in dict.fromkeys(name for s in record.settings for name in s.concept)]
    chance: Column[Setting] = Column("chance", lambda s: fraction(s.chance))
    names = ratio_columns(record, lambda s: s) or [Column("setting", lambda _: "all")]
    caption = (
        "Accuracy of the concept classifier and share of the majority, by split. Chance: share of same-concept "
        "neighbours that an uninformative representation would show."
    )
    if not sizes and not shares:
        return None
    return table_of("Rows and concept", names, [*sizes, *shares, chance], record.settings, caption)


def _counts_table(record: StudyRecord) -> Table | None:
    counts = record.data.get("counts")
    if not counts or not all(isinstance(row, Mapping) for row in counts.values()):
        return pairs_table("Counts", counts) if counts else None
    concepts = list(dict.fromkeys(concept for row in counts.values() for concept in row))
    rows = tuple((label, *(f"{row.get(concept, 0):,}" for concept in concepts)) for label, row in counts.items())
    return Table("Texts by class and concept", ("class", *concepts), rows)


def _fits_table(record: StudyRecord) -> Table | None:
    def facts(name: str) -> Column[Row]:
        return Column(name, lambda row: fact(row.result.facts.get(name)))

    names = dict.fromkeys(
        name for s in record.settings for r in s.methods for name in r.facts if not is_sweep(r.method)
    )
    caption = "Further facts about the fit of each method and about its classifier."
    return by_method(record, "Fits", [*map(facts, names)], caption=caption)
