"""Verdicts: our numbers compared with the published ones, by one rule that the captions state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.numbers import fraction, is_significant
from repsurgery.studies.common.report.published import LLAMA, Cell, TaskMeasure, published
from repsurgery.studies.fairness.record import MethodResult, Setting, StudyRecord
from repsurgery.studies.fairness.report.columns import measured_as
from repsurgery.studies.fairness.spec import NAMED_DATA

__all__ = [
    "RULE",
    "Verdict",
    "direction",
    "judge",
    "judge_change",
    "judge_neighbours",
    "judge_value",
    "published_cells",
    "published_study",
    "same_model",
]

RULE: Mapping[str, str] = {
    "the published encoder and data": "Values are compared. 'agrees': the published value lies in our interval as "
    "shown, ends included; otherwise the verdict is our value minus the published one.",
    "another encoder or other data": "Changes from the base are compared. 'same direction' or 'opposite': the paired "
    "test is significant (Holm's p-value over the rows of the study is at most .05). 'no difference seen': it is not.",
    "direction": "A published change of .001 or less counts as rounding and has no direction; the published models "
    "must agree on the direction.",
}
"""The rule of the verdicts, in words, by what it applies to."""

NOT_PUBLISHED = "not published"
_DATA = {"bios": "bias_in_bios", "dialect": "twitteraae"}
_ROWS = 150_000
"""With fewer rows, the data is a sample of the published data, even if it has the same name."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The published figure of one cell, as text, and how ours compares with it."""

    published: str
    verdict: str


def published_study(record: StudyRecord) -> str | None:
    """Return the published study beside which ``record`` stands; None for own data, of which nothing is published."""
    named = record.spec.get("data", record.experiment) in NAMED_DATA
    return record.experiment if named and record.experiment in published().sources else None


def same_model(record: StudyRecord) -> str | None:
    """Return the published model that ``record`` repeats on the published data; None if values are not comparable."""
    model = published().models.get(str(record.encoder.get("model", record.encoder.get("name"))))
    if model is None or record.data.get("name") != _DATA.get(record.experiment) or _rows(record) < _ROWS:
        return None
    return model if model in published_cells(record, None) else None


def _rows(record: StudyRecord) -> int:
    return sum(n for cells in record.data.get("counts", {}).values() for n in cells.values())


def published_cells(record: StudyRecord, ratio: float | None) -> Mapping[str, Mapping[str, Cell]]:
    """Return the published cells by model, then method; for the dialect study those at ``ratio``, if there are any."""
    study = published_study(record)
    if study == "bios":
        return published().bios
    if study == "dialect":
        cells = {} if ratio is None else published().dialect.get(round(ratio, 6), {})
        return {LLAMA: cells}
    return {}


def judge(record: StudyRecord, setting: Setting, result: MethodResult, measure: TaskMeasure) -> Verdict:
    """Return the verdict on one method's measure."""
    name = _published_name(result.method)
    models = published_cells(record, setting.ratio)
    cells = {model: cells for model, cells in models.items() if name in cells}
    model = same_model(record)
    if measured_as(record, measure) not in result.measures:
        return Verdict("–", "–")
    # the published setting of the post-processing is unknown, so its values are not comparable
    if model is not None and name != "postprocessing":
        if model not in cells:
            return Verdict("–", NOT_PUBLISHED)
        printed = cells[model][name][measure]
        shown = fraction(printed.value)
        if printed.corrected is not None:
            shown += f"† ({fraction(printed.corrected)})"
        return Verdict(shown, judge_value(result.measures[measured_as(record, measure)], printed.taken))
    if not cells:
        return Verdict("–", NOT_PUBLISHED)
    if name == "base":
        return Verdict("–", "not comparable")
    changes = [_change(cells[model], name, measure) for model in cells]
    shown = ", ".join(fraction(change, signed=True) for change in changes)
    ours = result.differences.get(measured_as(record, measure))
    return Verdict(shown, "–" if ours is None else judge_change(ours, changes))


def _published_name(method: str) -> str:
    return "postprocessing" if method.startswith("xian demographic-parity") else method


def _change(cells: Mapping[str, Cell], name: str, measure: TaskMeasure) -> float:
    return round(cells[name][measure].taken - cells["base"][measure].taken, 3)


def judge_value(ours: Estimate, theirs: float) -> str:
    """Compare values: the published one agrees if it lies in our interval, both rounded to three digits."""
    low = ours.value if ours.low is None else ours.low
    high = ours.value if ours.high is None else ours.high
    if round(low, 3) <= round(theirs, 3) <= round(high, 3):
        return "agrees"
    return f"differs by {fraction(round(ours.value, 3) - round(theirs, 3), signed=True)}"


def judge_change(ours: Estimate, theirs: Sequence[float]) -> str:
    """Compare the sign of our change from the base, if its test is significant, with that of the published changes."""
    sign = direction(theirs)
    if sign == 0:
        return "no direction published"
    if not is_significant(ours):
        return "no difference seen"
    return "same direction" if (ours.value > 0) == (sign > 0) else "opposite"


def direction(changes: Sequence[float]) -> int:
    """Return the sign that all changes beyond rounding share; 0 if there is no such change or they disagree."""
    signs = {1 if change > 0 else -1 for change in changes if abs(round(change, 3)) > 0.001}
    return signs.pop() if len(signs) == 1 else 0


def judge_neighbours(record: StudyRecord, result: MethodResult, k: str) -> Verdict:
    """Return the verdict on one method's share of same-concept neighbours."""
    shares = published().neighbours.get(int(k), {}) if published_study(record) == "bios" else {}
    if result.method not in shares:
        return Verdict("–", NOT_PUBLISHED)
    if same_model(record) == LLAMA:
        return Verdict(fraction(shares[result.method]), judge_value(result.neighbours[k], shares[result.method]))
    if result.method == "base":
        return Verdict("–", "not comparable")
    change = round(shares[result.method] - shares["base"], 3)
    shown = fraction(change, signed=True)
    ours = result.differences.get(f"neighbours.{k}")
    return Verdict(shown, "–") if ours is None else Verdict(shown, judge_change(ours, [change]))
