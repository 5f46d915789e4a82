"""Tables of a fairness study: what each method does to task, concept and certificate, beside the published figures."""

from collections.abc import Callable, Mapping
from typing import Any

from repsurgery.studies.common.report.certified import certificate_columns, is_certified
from repsurgery.studies.common.report.numbers import estimate, fraction
from repsurgery.studies.common.report.published import LLAMA, Measure, published
from repsurgery.studies.common.report.tables import Table, number
from repsurgery.studies.fairness.record import MethodResult, Setting, StudyRecord
from repsurgery.studies.fairness.report.rows import (
    Column,
    by_method,
    has_ratios,
    is_sweep,
    key,
    lead,
    measured_as,
    steered,
)
from repsurgery.studies.fairness.report.verdicts import RULE, judge, judge_neighbours, published_cells, same_model
from repsurgery.studies.significance import adjusted_study, study_with_tests, without_tests

__all__ = ["result_tables"]

_INTERVALS = (
    "Brackets hold 95% intervals: exact ones of accuracy; those of the TPR gap RMS hold the gap that samples of this "
    "size show and the gap without sampling noise. Changes are paired with the base. "
)
_OLDER = (
    "This record keeps no rows: the intervals of gaps are the percentiles that it holds, widened by its noise, and "
    "p-values follow from the width of intervals. "
)
_NOISE = "By sampling alone: the gap that as many rows would show if both groups had the same TPR in every class. "
_LARGEST = 10
_TITLES: Mapping[Measure, str] = {"tpr_gap": "TPR gap RMS", "accuracy": "Accuracy"}


def result_tables(record: StudyRecord) -> list[Table]:
    """Return the tables of the results; what was not measured has none."""
    older = without_tests(result for setting in record.settings for result in setting.methods)
    record = adjusted_study(study_with_tests(record))
    task = [_ratio_table(record, "tpr_gap"), _ratio_table(record, "accuracy")] if has_ratios(record) else []
    tables = [
        *task,
        _task_table(record, "tpr_gap", _OLDER if older else ""),
        _task_table(record, "accuracy", ""),
        _other_table(record),
        _dev_table(record),
        _neighbour_table(record),
        _neighbour_verdicts(record),
        _sweep_table(record, "tpr_gap"),
        _sweep_table(record, "accuracy"),
        _class_table(record),
        _certificate_table(record),
    ]
    return [table for table in tables if table is not None]


def _measure(name: str) -> Callable[[Setting, MethodResult], str]:
    return lambda _, result: estimate(result.measures.get(name))


def _difference(name: str) -> Callable[[Setting, MethodResult], str]:
    return lambda _, result: estimate(result.differences.get(name), signed=True)


def _plain(name: str) -> Callable[[Setting, MethodResult], str]:
    return lambda _, result: number(result.measures[name].value) if name in result.measures else "–"


def _changed(record: StudyRecord, measure: Measure) -> tuple[Column, Column]:
    name = measured_as(record, measure)
    return (_TITLES[measure], _measure(name)), ("change from base", _difference(name))


def _beside(record: StudyRecord, measure: Measure) -> tuple[Column, Column]:
    model = same_model(record)
    models = ", ".join(published_cells(record.experiment, None))
    heading = f"published change ({models})" if model is None else f"published ({model})"
    return (
        (heading, lambda setting, result: judge(record, setting, result, measure).published),
        ("verdict", lambda setting, result: judge(record, setting, result, measure).verdict),
    )


def _task_table(record: StudyRecord, measure: Measure, older: str) -> Table | None:
    noise = (("by sampling alone", _plain("test.tpr_gap_noise")),) if measure == "tpr_gap" else ()
    columns = (*_changed(record, measure), *noise, *_beside(record, measure))
    title = _TITLES[measure]
    caption = "Test split. " + _INTERVALS + older + (_NOISE if noise else "") + _published_caption(record, measure)
    if not has_ratios(record):
        return by_method(record, title, columns, caption=caption)
    title += " against the published figures"
    return by_method(record, title, columns, caption=caption, keep=lambda s, r: _is_published(record, s, r))


def _is_published(record: StudyRecord, setting: Setting, result: MethodResult) -> bool:
    cells = published_cells(record.experiment, setting.ratio).values()
    return any(result.method in methods for methods in cells)


def _published_caption(record: StudyRecord, measure: Measure) -> str:
    figures = published()
    if record.experiment not in figures.sources:
        return ""
    bios = "classes" if measure == "tpr_gap" else "accuracy"
    note = figures.notes[bios if record.experiment == "bios" else "dialect"]
    if bios == "classes" and record.experiment == "bios":
        chosen = record.spec.get("tpr_classes") == "predicted"
        note += " So do ours here." if chosen else " Ours average over all classes with both groups."
    mark = "† printed in error: " if measure == "accuracy" and same_model(record) == LLAMA else ""
    rule = RULE if measure == "tpr_gap" else "Verdicts follow the rule of the TPR gap."
    return f"Published: {figures.sources[record.experiment]} {mark}{note} {rule}"


def _ratio_table(record: StudyRecord, measure: Measure) -> Table | None:
    name, title = measured_as(record, measure), f"{_TITLES[measure]} by ratio"
    methods = list(dict.fromkeys(r.method for s in record.settings for r in steered(s) if name in r.measures))
    if not methods:
        return None
    rows = []
    for setting in record.settings:
        results = [setting.method(method) for method in methods]
        cells = (estimate(result.measures.get(name)) if result else "–" for result in results)
        rows.append((*key(record, setting), *cells))
    caption = (
        "Test split; the ratio is the share of the target dialect with positive sentiment, and of the other dialect "
        "with negative sentiment. Brackets hold 95% intervals. The test split shares the training split's "
        "bias, so accuracy before surgery rises with the ratio."
    )
    return Table(title, (*lead(record), *methods), tuple(rows), caption)


def _other_table(record: StudyRecord) -> Table | None:
    columns = (
        ("TPR gap RMS, all classes", _measure("test.tpr_gap_rms")),
        ("TPR gap RMS, classes predicted", _measure("test.tpr_gap_rms_predicted")),
        ("demographic parity", _measure("test.demographic_parity")),
        ("equalised odds", _measure("test.equalized_odds")),
        ("linear probe", _measure("probe.linear")),
        ("MLP probe", _measure("probe.mlp")),
        ("majority share", lambda setting, result: _majority(setting) if _probed(result) else "–"),
        ("EBBN", _plain("ebbn")),
        ("EBBN without self pairs", _plain("ebbn_u")),
    )
    caption = (
        "Test split. 'classes predicted': over the classes that the classifier predicts correctly at least once. "
        "Demographic parity and equalised odds: the largest difference between the groups over classes. Probes: "
        "accuracy of a fresh probe for the concept on held-out rows, to be read beside the share of the majority. "
        "EBBN, the expected bias by neighbours between source and target, on the dev rows: the base shows it before."
    )
    return by_method(record, "Other measures", columns, caption=caption)


def _probed(result: MethodResult) -> bool:
    return "probe.linear" in result.measures or "probe.mlp" in result.measures


def _majority(setting: Setting) -> str:
    shares = (setting.concept.get(f"{split}.majority") for split in ("test", "dev", "train"))
    return fraction(next((share for share in shares if share is not None), None))


def _dev_table(record: StudyRecord) -> Table | None:
    columns = (
        ("TPR gap RMS", _measure(measured_as(record, "tpr_gap", "dev"))),
        ("change from base", _difference(measured_as(record, "tpr_gap", "dev"))),
        ("accuracy", _measure("dev.accuracy")),
        ("change from base", _difference("dev.accuracy")),
        ("demographic parity", _measure("dev.demographic_parity")),
        ("equalised odds", _measure("dev.equalized_odds")),
    )
    return by_method(record, "On the dev split", columns, caption=_INTERVALS.strip())


def _neighbour_table(record: StudyRecord) -> Table | None:
    columns = [(f"k = {k}", _share(k)) for k in _counts(record)]
    levels = ", ".join(dict.fromkeys(fraction(setting.chance) for setting in record.settings))
    split = record.spec.get("neighbour_split", "dev")
    caption = (
        f"Share of the k nearest {split} rows (cosine) with the query's concept; chance {levels}. "
        "Brackets hold 95% intervals over the queries."
    )
    return by_method(record, "Neighbours", columns, caption=caption)


def _neighbour_verdicts(record: StudyRecord) -> Table | None:
    columns = [(f"k = {k}", _neighbour_verdict(record, k)) for k in _counts(record)]
    what = "shares" if same_model(record) == LLAMA else "changes from base"
    caption = (
        f"Published {what} and how ours compare, on paired queries. {published().sources['neighbours']} "
        f"{published().notes['neighbours']}"
    )
    return by_method(record, f"Neighbours against the published {what}", columns, caption=caption, keep=_told)


def _told(_: Setting, result: MethodResult) -> bool:
    return any(result.method in shares for shares in published().neighbours.values())


def _counts(record: StudyRecord) -> list[str]:
    return list(
        dict.fromkeys(k for setting in record.settings for result in setting.methods for k in result.neighbours)
    )


def _share(k: str) -> Callable[[Setting, MethodResult], str]:
    return lambda _, result: estimate(result.neighbours.get(k))


def _neighbour_verdict(record: StudyRecord, k: str) -> Callable[[Setting, MethodResult], str]:
    def cell(_: Setting, result: MethodResult) -> str:
        told = judge_neighbours(record, result, k)
        return "–" if told.published == "–" else f"{told.published}: {told.verdict}"

    return cell


def _sweep_table(record: StudyRecord, measure: Measure) -> Table | None:
    names: tuple[Column, ...] = tuple((name, _fact(name)) for name in ("criterion", "group", "alpha"))
    verdict: Column = ("verdict", lambda setting, result: judge(record, setting, result, measure).verdict)
    parity = (
        ("demographic parity", _measure("test.demographic_parity")),
        ("equalised odds", _measure("test.equalized_odds")),
    )
    columns = (*_changed(record, measure), verdict, *(parity if measure == "tpr_gap" else ()))
    caption = (
        "The classifier's scores are changed, not the representation. alpha: the difference between groups that is "
        "allowed; 'group': whether gold or predicted groups are given at prediction. "
        f"Published, base → post-processing: {_published_sweep(measure)}. " + published().notes["postprocessing"]
    )
    title = f"Post-processing by alpha (Xian, Yin, Zhao 2023): {_TITLES[measure]}"
    return by_method(record, title, columns, caption=caption, names=names, keep=lambda _, result: is_sweep(result))


def _published_sweep(measure: Measure) -> str:
    told = []
    for model, cells in published().bios.items():
        if "postprocessing" in cells:
            before, after = (fraction(cells[name][measure].value) for name in ("base", "postprocessing"))
            told.append(f"{model} {before} → {after}")
    return ", ".join(told)


def _fact(name: str) -> Callable[[Setting, MethodResult], str]:
    return lambda _, result: "–" if name not in result.facts else _word(result.facts[name])


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _class_table(record: StudyRecord) -> Table | None:
    methods = list(dict.fromkeys(r.method for s in record.settings for r in steered(s) if r.gaps))
    rows = []
    for setting in record.settings:
        base = setting.method("base")
        known = {} if base is None else {c: gap for c, gap in base.gaps.items() if gap is not None}
        largest = sorted(known, key=lambda c: (-abs(known[c]), c))[:_LARGEST]
        results = [setting.method(method) for method in methods]
        for c in largest:
            cells = (fraction(result.gaps.get(c), signed=True) if result else "–" for result in results)
            rows.append((*key(record, setting), c, *cells))
    if not rows:
        return None
    caption = (
        f"True positive rate of the second concept value minus that of the first, test split: the {_LARGEST} classes "
        "with the largest gap before surgery, at most."
    )
    return Table(
        "TPR gap by class", (*lead(record), "class", *methods), tuple(rows), caption, keys=len(lead(record)) + 1
    )


def _certificate_table(record: StudyRecord) -> Table | None:
    columns = [(heading, lambda _, result, cell=cell: cell(result)) for heading, cell in certificate_columns()]
    caption = (
        "Fitted: on the rows of the fit, what the certificate claims. Held out: re-issued on dev rows, the map applied "
        "by labels; 'as gated': when the gate decides. Covariance gaps are relative. 'claims': whether the held-out "
        "rows support what the method claims, within sampling error."
    )
    return by_method(record, "Certificates", columns, caption=caption, keep=lambda _, result: is_certified(result))
