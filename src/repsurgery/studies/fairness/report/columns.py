"""The columns of a fairness study's tables, and the rows that they show: one for each setting and method."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.numbers import fraction
from repsurgery.studies.common.report.published import TaskMeasure
from repsurgery.studies.common.report.tables import Column, Measure, Table, table_of
from repsurgery.studies.fairness.record import MethodResult, Setting, StudyRecord, is_sweep

__all__ = ["Row", "by_method", "measured_as", "measures_of", "ratio_columns", "steered"]

_MEASURES = (
    Measure("test.{tpr_gap}", "TPR gap RMS", "tpr_gap", better="lower", change=True, published="tpr_gap"),
    Measure("test.tpr_gap_noise", "by sampling alone", "tpr_gap", "number"),
    Measure("test.accuracy", "Accuracy", "accuracy", better="higher", change=True, published="accuracy"),
    Measure("test.tpr_gap_rms", "TPR gap RMS, all classes", "other", better="lower"),
    Measure("test.tpr_gap_rms_predicted", "TPR gap RMS, classes predicted", "other", better="lower"),
    Measure("test.demographic_parity", "demographic parity", "other", better="lower"),
    Measure("test.equalized_odds", "equalised odds", "other", better="lower"),
    Measure("probe.linear", "linear probe", "other", better="lower"),
    Measure("probe.mlp", "MLP probe", "other", better="lower"),
    Measure("majority", "majority share", "other"),
    Measure("ebbn", "EBBN", "other", "number", better="lower"),
    Measure("ebbn_u", "EBBN without self pairs", "other", "number", better="lower"),
    Measure("dev.{tpr_gap}", "TPR gap RMS", "dev", better="lower", change=True),
    Measure("dev.accuracy", "accuracy", "dev", better="higher", change=True),
    Measure("dev.demographic_parity", "demographic parity", "dev", better="lower"),
    Measure("dev.equalized_odds", "equalised odds", "dev", better="lower"),
)
"""Every measure with the table that shows it; a new column is a new line here."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """One method in one setting."""

    setting: Setting
    result: MethodResult

    @property
    def measures(self) -> Mapping[str, Estimate]:
        """The measures of the method, and the share of the majority beside its probes."""
        if not {"probe.linear", "probe.mlp"} & self.result.measures.keys():
            return self.result.measures
        shares = (self.setting.concept.get(f"{split}.majority") for split in ("test", "dev", "train"))
        majority = next((share for share in shares if share is not None), None)
        return {**self.result.measures, **({} if majority is None else {"majority": Estimate(majority)})}

    @property
    def differences(self) -> Mapping[str, Estimate]:
        """The differences of the method from the base."""
        return self.result.differences


def measures_of(record: StudyRecord, table: str) -> list[Measure]:
    """Return the measures that a table of ``record`` shows, in order."""
    gap = measured_as(record, "tpr_gap").removeprefix("test.")
    return [measure.of(tpr_gap=gap) for measure in _MEASURES if measure.table == table]


def measured_as(record: StudyRecord, measure: TaskMeasure) -> str:
    """Return the key of a measure on the test split; the TPR gap is over the classes that the study chose."""
    if measure == "accuracy":
        return "test.accuracy"
    return "test.tpr_gap_rms" + ("_predicted" if record.spec.get("tpr_classes") == "predicted" else "")


def steered(setting: Setting) -> list[MethodResult]:
    """Return the base and the methods that change representations, in the record's order."""
    return [result for result in setting.methods if not is_sweep(result.method)]


def ratio_columns(record: StudyRecord, setting_of: Callable[[T], Setting]) -> list[Column[T]]:
    """Return the column of the ratio, if the settings of ``record`` have one."""
    if all(setting.ratio is None for setting in record.settings):
        return []
    return [Column("ratio", lambda row: fraction(setting_of(row).ratio, digits=2))]


def by_method(
    record: StudyRecord,
    title: str,
    columns: Sequence[Column[Row]],
    *,
    caption: str,
    names: Sequence[Column[Row]] = (Column("method", lambda row: row.result.method),),
    keep: Callable[[Row], bool] = lambda row: not is_sweep(row.result.method),
) -> Table | None:
    """Return the table of all settings and methods that ``keep`` accepts; None if no column holds a value."""
    rows = [Row(setting, result) for setting in record.settings for result in setting.methods]
    ratios: list[Column[Row]] = ratio_columns(record, lambda row: row.setting)
    return table_of(title, [*ratios, *names], columns, filter(keep, rows), caption)
