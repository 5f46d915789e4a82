"""Tables of a fairness study: what each method does to task, concept and certificate, beside the published figures."""

from collections.abc import Mapping

from repsurgery.studies.common.report.certificates import CERTIFICATE_COLUMNS, certificates_caption, is_certified
from repsurgery.studies.common.report.numbers import estimate, fraction, word
from repsurgery.studies.common.report.published import LLAMA, TaskMeasure, published
from repsurgery.studies.common.report.significance import without_tests
from repsurgery.studies.common.report.tables import Column, Table, table_of
from repsurgery.studies.fairness.record import MethodResult, Setting, StudyRecord, is_sweep
from repsurgery.studies.fairness.report.columns import (
    Row,
    by_method,
    measured_as,
    measures_of,
    ratio_columns,
    steered,
)
from repsurgery.studies.fairness.report.equal_accuracy import equal_accuracy_table
from repsurgery.studies.fairness.report.significance import adjusted_study, study_with_tests
from repsurgery.studies.fairness.report.verdicts import RULE, judge, judge_neighbours, published_cells, same_model

__all__ = ["result_tables"]

_INTERVALS = (
    "Brackets contain 95% intervals. Those of accuracy are exact; those of the TPR gap RMS cover both the gap that "
    "samples of this size show and the gap without sampling noise. Changes are paired with the base. "
)
_OLDER = (
    "This record contains no rows: the intervals of gaps are its percentile intervals, widened by its noise, and "
    "p-values follow from the width of the intervals. "
)
_NOISE = "'by sampling alone': the gap that as many rows would show if both groups had the same TPR in every class. "
_LARGEST = 10
_PARITY = ("test.demographic_parity", "test.equalized_odds")
_TITLES: Mapping[TaskMeasure, str] = {"tpr_gap": "TPR gap RMS", "accuracy": "Accuracy"}


def result_tables(record: StudyRecord) -> list[Table]:
    """Return the tables of the results; what was not measured has no table."""
    older = without_tests(result for setting in record.settings for result in setting.methods)
    record = adjusted_study(study_with_tests(record))
    tables = [
        _ratio_table(record, "tpr_gap"),
        _ratio_table(record, "accuracy"),
        _task_table(record, "tpr_gap", (_OLDER if older else "") + _NOISE),
        _task_table(record, "accuracy", ""),
        _other_table(record),
        _dev_table(record),
        _neighbour_table(record),
        _neighbour_verdicts(record),
        _sweep_table(record, "tpr_gap"),
        _sweep_table(record, "accuracy"),
        equal_accuracy_table(record),
        _class_table(record),
        _certificate_table(record),
    ]
    return [table for table in tables if table is not None]


def _measured(record: StudyRecord, table: str) -> list[Column[Row]]:
    return [column for measure in measures_of(record, table) for column in measure.columns(star=False)]


def _has_ratios(record: StudyRecord) -> bool:
    return any(setting.ratio is not None for setting in record.settings)


def _task_table(record: StudyRecord, measure: TaskMeasure, notes: str) -> Table | None:
    model = same_model(record)
    models = ", ".join(published_cells(record.experiment, None))
    heading = f"published change ({models})" if model is None else f"published ({model})"
    columns = [
        *_measured(record, measure),
        Column(heading, lambda row: judge(record, row.setting, row.result, measure).published),
        _verdict(record, measure),
    ]
    caption = "Test split. " + _INTERVALS + notes + _published_caption(record, measure)
    if not _has_ratios(record):
        return by_method(record, _TITLES[measure], columns, caption=caption)

    def is_published(row: Row) -> bool:
        cells = published_cells(record.experiment, row.setting.ratio).values()
        return any(row.result.method in methods for methods in cells)

    title = f"{_TITLES[measure]} against the published figures"
    return by_method(record, title, columns, caption=caption, keep=is_published)


def _verdict(record: StudyRecord, measure: TaskMeasure) -> Column[Row]:
    return Column("verdict", lambda row: judge(record, row.setting, row.result, measure).verdict)


def _published_caption(record: StudyRecord, measure: TaskMeasure) -> str:
    figures = published()
    if record.experiment not in figures.sources:
        return ""
    bios = "classes" if measure == "tpr_gap" else "accuracy"
    note = figures.notes[bios if record.experiment == "bios" else "dialect"]
    if bios == "classes" and record.experiment == "bios":
        predicted = record.spec.get("tpr_classes") == "predicted"
        note += " So do ours here." if predicted else " Ours average over all classes with both groups."
    mark = "† printed in error: " if measure == "accuracy" and same_model(record) == LLAMA else ""
    rule = RULE if measure == "tpr_gap" else "Verdicts follow the rule of the TPR gap."
    return f"Published: {figures.sources[record.experiment]} {mark}{note} {rule}"


def _ratio_table(record: StudyRecord, measure: TaskMeasure) -> Table | None:
    if not _has_ratios(record):
        return None
    key = measured_as(record, measure)
    methods = dict.fromkeys(r.method for s in record.settings for r in steered(s) if key in r.measures)

    def values(method: str) -> Column[Setting]:
        def cell(setting: Setting) -> str:
            result = setting.method(method)
            return estimate(result.measures.get(key)) if result else "–"

        return Column(method, cell)

    caption = (
        "Test split. The ratio is the share of the target dialect with positive sentiment, and of the other dialect "
        "with negative sentiment. Brackets contain 95% intervals. The test split has the same bias as the training "
        "split, so accuracy before steering rises with the ratio."
    )
    ratios = ratio_columns(record, lambda setting: setting)
    return table_of(f"{_TITLES[measure]} by ratio", ratios, [*map(values, methods)], record.settings, caption)


def _other_table(record: StudyRecord) -> Table | None:
    caption = (
        "Test split. 'classes predicted': over the classes that the classifier predicts correctly at least once. "
        "Demographic parity and equalised odds: the largest difference between the groups over all classes. Probes: "
        "accuracy of a newly trained probe for the concept on held-out rows; compare it with the share of the "
        "majority. EBBN: the expected bias by neighbours between source and target on the dev rows; the row of the "
        "base shows it before steering."
    )
    return by_method(record, "Other measures", _measured(record, "other"), caption=caption)


def _dev_table(record: StudyRecord) -> Table | None:
    return by_method(record, "On the dev split", _measured(record, "dev"), caption=_INTERVALS)


def _neighbour_table(record: StudyRecord) -> Table | None:
    def share(k: str) -> Column[Row]:
        return Column(f"k = {k}", lambda row: estimate(row.result.neighbours.get(k)))

    levels = ", ".join(dict.fromkeys(fraction(setting.chance) for setting in record.settings))
    caption = (
        f"Share of the k nearest {record.spec.get('neighbour_split', 'dev')} rows (cosine) that have the concept of "
        f"the query; chance level {levels}. Brackets contain 95% intervals over the queries."
    )
    return by_method(record, "Neighbours", [*map(share, _counts(record))], caption=caption)


def _neighbour_verdicts(record: StudyRecord) -> Table | None:
    def verdict(k: str) -> Column[Row]:
        def cell(row: Row) -> str:
            judged = judge_neighbours(record, row.result, k)
            return "–" if judged.published == "–" else f"{judged.published}: {judged.verdict}"

        return Column(f"k = {k}", cell)

    def is_published(row: Row) -> bool:
        return any(row.result.method in shares for shares in figures.neighbours.values())

    figures, what = published(), "shares" if same_model(record) == LLAMA else "changes from base"
    title = f"Neighbours against the published {what}"
    caption = (
        f"Published {what} and how ours compare, on paired queries. {figures.sources['neighbours']} "
        f"{figures.notes['neighbours']}"
    )
    return by_method(record, title, [*map(verdict, _counts(record))], caption=caption, keep=is_published)


def _counts(record: StudyRecord) -> list[str]:
    return list(dict.fromkeys(k for setting in record.settings for r in setting.methods for k in r.neighbours))


def _sweep_table(record: StudyRecord, measure: TaskMeasure) -> Table | None:
    def fact_column(name: str) -> Column[Row]:
        return Column(name, lambda row: word(row.result.facts.get(name)))

    parity = [m.value() for m in measures_of(record, "other") if m.key in _PARITY] if measure == "tpr_gap" else []
    caption = (
        "The post-processing changes the scores of the classifier, not the representation. alpha: the allowed "
        "difference between groups; 'group': whether gold, predicted or no groups (blind) are given at prediction. "
        f"Published, base → post-processing: {_published_sweep(measure)}. {published().notes['postprocessing']}"
    )
    return by_method(
        record,
        f"Post-processing by alpha (Xian, Yin, Zhao 2023): {_TITLES[measure]}",
        [*_measured(record, measure)[:2], _verdict(record, measure), *parity],
        caption=caption,
        names=[fact_column(name) for name in ("criterion", "group", "alpha")],
        keep=lambda row: is_sweep(row.result.method),
    )


def _published_sweep(measure: TaskMeasure) -> str:
    changes = []
    for model, cells in published().bios.items():
        if "postprocessing" in cells:
            before, after = (fraction(cells[name][measure].value) for name in ("base", "postprocessing"))
            changes.append(f"{model} {before} → {after}")
    return ", ".join(changes)


def _class_table(record: StudyRecord) -> Table | None:
    def gap(method: str) -> Column[tuple[Setting, str]]:
        def cell(row: tuple[Setting, str]) -> str:
            result = row[0].method(method)
            return fraction(result.gaps.get(row[1]), signed=True) if result else "–"

        return Column(method, cell)

    methods = dict.fromkeys(r.method for s in record.settings for r in steered(s) if r.gaps)
    ratios: list[Column[tuple[Setting, str]]] = ratio_columns(record, lambda row: row[0])
    labels: Column[tuple[Setting, str]] = Column("class", lambda row: row[1])
    caption = (
        "True positive rate of the second value of the concept minus that of the first, on the test split, for the "
        f"classes with the largest gap before steering, {_LARGEST} at most."
    )
    rows = [(setting, label) for setting in record.settings for label in _largest_gaps(setting)]
    return table_of("TPR gap by class", [*ratios, labels], [*map(gap, methods)], rows, caption)


def _largest_gaps(setting: Setting) -> list[str]:
    base = setting.method("base")
    gaps = {} if base is None else {label: gap for label, gap in base.gaps.items() if gap is not None}
    return sorted(gaps, key=lambda label: (-abs(gaps[label]), label))[:_LARGEST]


def _certificate_table(record: StudyRecord) -> Table | None:
    def of_result(column: Column[MethodResult]) -> Column[Row]:
        return Column(column.heading, lambda row: column.cell(row.result))

    return by_method(
        record,
        "Certificates",
        [*map(of_result, CERTIFICATE_COLUMNS)],
        caption=certificates_caption("dev rows"),
        keep=lambda row: is_certified(row.result),
    )
