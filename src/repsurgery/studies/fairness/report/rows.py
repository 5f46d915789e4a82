"""Rows of a study's tables: one for each setting and method, columns without a single value left out."""

from collections.abc import Callable, Sequence

from repsurgery.studies.common.report.numbers import fraction
from repsurgery.studies.common.report.published import Measure
from repsurgery.studies.common.report.tables import Table
from repsurgery.studies.fairness.record import MethodResult, Setting, StudyRecord

__all__ = ["Column", "by_method", "has_ratios", "is_sweep", "key", "lead", "measured_as", "steered"]

Column = tuple[str, Callable[[Setting, MethodResult], str]]
"""A heading, and the cell of one setting and method under it."""

_EMPTY = {"–", "not published"}


def measured_as(record: StudyRecord, measure: Measure, split: str = "test") -> str:
    """Return the record's name of a measure: of the TPR gap, over the classes that the study chose."""
    if measure == "accuracy":
        return f"{split}.accuracy"
    return f"{split}.tpr_gap_rms" + ("_predicted" if record.spec.get("tpr_classes") == "predicted" else "")


def is_sweep(result: MethodResult) -> bool:
    """Return whether a result is one point of the post-processing's sweep over alpha."""
    return result.method.startswith("xian")


def steered(setting: Setting) -> list[MethodResult]:
    """Return the base and the methods that change representations, in the record's order."""
    return [result for result in setting.methods if not is_sweep(result)]


def has_ratios(record: StudyRecord) -> bool:
    """Return whether the settings differ by a ratio."""
    return any(setting.ratio is not None for setting in record.settings)


def lead(record: StudyRecord) -> tuple[str, ...]:
    """Return the heading of the ratios, where there are any."""
    return ("ratio",) if has_ratios(record) else ()


def key(record: StudyRecord, setting: Setting) -> tuple[str, ...]:
    """Return the cell of the setting's ratio, where settings have one."""
    return (fraction(setting.ratio, digits=2),) if has_ratios(record) else ()


def by_method(
    record: StudyRecord,
    title: str,
    columns: Sequence[Column],
    *,
    caption: str,
    names: Sequence[Column] = (("method", lambda _, result: result.method),),
    keep: Callable[[Setting, MethodResult], bool] = lambda _, result: not is_sweep(result),
) -> Table | None:
    """Return the table of all kept methods in all settings; None where no column holds a value."""
    pairs = [(setting, result) for setting in record.settings for result in setting.methods if keep(setting, result)]
    cells = [(heading, [cell(*pair) for pair in pairs]) for heading, cell in columns]
    shown = [(heading, column) for heading, column in cells if not set(column) <= _EMPTY]
    if not shown:
        return None
    rows = tuple(
        (*key(record, setting), *(name(setting, result) for _, name in names), *(column[i] for _, column in shown))
        for i, (setting, result) in enumerate(pairs)
    )
    headings = (*lead(record), *(heading for heading, _ in names), *(heading for heading, _ in shown))
    return Table(title, headings, rows, caption, keys=len(lead(record)) + len(names))
