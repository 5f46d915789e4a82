"""Tables of a fairness study: what each method does to task, concept and certificate, beside the published figures."""

from collections.abc import Callable, Mapping, Sequence

from repsurgery.studies.common.report.certificates import CERTIFICATE_COLUMNS, certificates_caption, is_certified
from repsurgery.studies.common.report.numbers import estimate, fraction, word
from repsurgery.studies.common.report.published import LLAMA, TaskMeasure, published
from repsurgery.studies.common.report.significance import without_tests
from repsurgery.studies.common.report.tables import Column, Table, pairs_table, table_of
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
from repsurgery.studies.fairness.report.verdicts import (
    RULE,
    judge,
    judge_neighbours,
    published_cells,
    published_study,
    same_model,
)

__all__ = ["result_tables"]

_INTERVALS = "Brackets contain 95% intervals; changes are paired with the base. "
_GAPS = (
    "Intervals of the gap cover both the gap that samples of this size show and the gap without sampling noise. "
    "'by sampling alone': the gap that as many rows would show if both groups had the same TPR in every class. "
)
_SEEN = "*: the change is significant (Holm's p-value over the rows of the study is at most .05). "
_OLDER = (
    "This record contains no rows: intervals of gaps are widened percentile intervals, whose width gives the p-values. "
)
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
        _task_table(record, "tpr_gap", _GAPS + (_OLDER if older else "")),
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
    shown = [table for table in tables if table is not None]
    rules = _rules_table(record) if shown else None
    return shown if rules is None else [*shown, rules]


def _measured(record: StudyRecord, table: str) -> list[Column[Row]]:
    # where verdicts stand beside the changes, they say what is significant
    star = published_study(record) is None
    return [column for measure in measures_of(record, table) for column in measure.columns(star=star)]


def _seen(record: StudyRecord) -> str:
    """Return what the stars of the changes mean; empty where verdicts stand beside them."""
    return "" if published_study(record) else _SEEN


def _has_ratios(record: StudyRecord) -> bool:
    return any(setting.ratio is not None for setting in record.settings)


def _task_table(record: StudyRecord, measure: TaskMeasure, notes: str) -> Table | None:
    model = same_model(record)
    models = ", ".join(published_cells(record, None))
    heading = f"published change ({models})" if model is None else f"published ({model})"
    columns = [
        *_measured(record, measure),
        Column(heading, lambda row: judge(record, row.setting, row.result, measure).published),
        _verdict(record, measure),
    ]
    caption = "Test split. " + _INTERVALS + notes + (_seen(record) or _published_caption(record, measure))
    if published_study(record) is None:
        title = _TITLES[measure] + (" against the base" if _has_ratios(record) else "")
        return by_method(record, title, columns, caption=caption)
    if not _has_ratios(record):
        return by_method(record, _TITLES[measure], columns, caption=caption)

    def is_published(row: Row) -> bool:
        cells = published_cells(record, row.setting.ratio).values()
        return any(row.result.method in methods for methods in cells)

    title = f"{_TITLES[measure]} against the published figures"
    return by_method(record, title, columns, caption=caption, keep=is_published)


def _verdict(record: StudyRecord, measure: TaskMeasure) -> Column[Row]:
    return Column("verdict", lambda row: judge(record, row.setting, row.result, measure).verdict)


def _published_caption(record: StudyRecord, measure: TaskMeasure) -> str:
    figures = published()
    mark = "† printed in error. " if measure == "accuracy" and same_model(record) == LLAMA else ""
    return f"Published: {figures.sources[record.experiment]} {mark}The table of rules states how verdicts are made."


def _rules_table(record: StudyRecord) -> Table | None:
    """Return how verdicts on the published figures are made, and what is known about these figures."""
    figures, study = published(), published_study(record)
    if study is None:
        return None
    notes = {"published dialect study": figures.notes["dialect"]}
    if study == "bios":
        predicted = record.spec.get("tpr_classes") == "predicted"
        ours = " So do ours here." if predicted else " Ours average over all classes with both groups."
        notes = {
            "published TPR gaps": figures.notes["classes"] + ours,
            "published accuracies": figures.notes["accuracy"],
            "published neighbours": figures.notes["neighbours"],
            "published post-processing": figures.notes["postprocessing"],
        }
    return pairs_table("How verdicts are made", {**RULE, **notes})


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
    return by_method(record, "On the dev split", _measured(record, "dev"), caption=_INTERVALS + _seen(record))


def _neighbour_table(record: StudyRecord) -> Table | None:
    def share(result: MethodResult, k: str) -> str:
        return estimate(result.neighbours.get(k))

    levels = ", ".join(dict.fromkeys(fraction(setting.chance) for setting in record.settings))
    caption = (
        f"Share of the k nearest {record.spec.get('neighbour_split', 'dev')} rows (cosine) that have the concept of "
        f"the query; chance level {levels}. Brackets contain 95% intervals over the queries."
    )
    return _by_count(record, "Neighbours", _neighbour_methods(record), share, caption)


def _neighbour_verdicts(record: StudyRecord) -> Table | None:
    def verdict(result: MethodResult, k: str) -> str:
        judged = judge_neighbours(record, result, k)
        return "–" if judged.published == "–" else f"{judged.published}: {judged.verdict}"

    figures, what = published(), "shares" if same_model(record) == LLAMA else "changes from base"
    title = f"Neighbours against the published {what}"
    caption = f"Published {what} and how ours compare, on paired queries. {figures.sources['neighbours']}"
    known = {method for shares in figures.neighbours.values() for method in shares}
    methods = [method for method in _neighbour_methods(record) if method in known]
    return _by_count(record, title, methods, verdict, caption)


def _neighbour_methods(record: StudyRecord) -> list[str]:
    return list(dict.fromkeys(r.method for setting in record.settings for r in setting.methods if r.neighbours))


def _by_count(
    record: StudyRecord, title: str, methods: Sequence[str], text: Callable[[MethodResult, str], str], caption: str
) -> Table | None:
    """Return a table with a row for each setting and number k of neighbours, and a column for each method."""

    def of(method: str) -> Column[tuple[Setting, str]]:
        def cell(row: tuple[Setting, str]) -> str:
            result = row[0].method(method)
            return text(result, row[1]) if result else "–"

        return Column(method, cell)

    ratios: list[Column[tuple[Setting, str]]] = ratio_columns(record, lambda row: row[0])
    counts: Column[tuple[Setting, str]] = Column("k", lambda row: row[1])
    rows = [(s, k) for s in record.settings for k in dict.fromkeys(k for r in s.methods for k in r.neighbours)]
    return table_of(title, [*ratios, counts], [*map(of, methods)], rows, caption)


def _sweep_table(record: StudyRecord, measure: TaskMeasure) -> Table | None:
    def fact_column(name: str) -> Column[Row]:
        return Column(name, lambda row: word(row.result.facts.get(name)))

    parity = [m.value() for m in measures_of(record, "other") if m.key in _PARITY] if measure == "tpr_gap" else []
    caption = (
        "The post-processing changes the scores of the classifier, not the representation. alpha: the allowed "
        "difference between groups; 'group': whether gold, predicted or no groups (blind) are given at prediction. "
        + (_seen(record) or f"Published, base → post-processing: {_published_sweep(measure)}.")
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
