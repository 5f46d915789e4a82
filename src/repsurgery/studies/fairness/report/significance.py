"""Tests of the differences in a fairness record, also for older records, which have intervals but no tests."""

import math
from collections.abc import Mapping
from dataclasses import replace

from repsurgery.metrics.intervals import share_interval
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.significance import (
    LEVEL,
    adjusted_rows,
    normal_p_value,
    with_test,
    without_tests,
)
from repsurgery.studies.fairness.record import MethodResult, StudyRecord, is_sweep

__all__ = ["adjusted_study", "study_with_tests"]


def adjusted_study(record: StudyRecord) -> StudyRecord:
    """Return the record with the p-values of each measure adjusted over settings and methods; sweeps separately."""
    results = [result for setting in record.settings for result in setting.methods]
    new: dict[int, MethodResult] = {}
    for sweep in (True, False):
        rows = [result for result in results if is_sweep(result.method) == sweep]
        new |= {id(old): row for old, row in zip(rows, adjusted_rows(rows), strict=True)}
    settings = (replace(s, methods=tuple(new[id(result)] for result in s.methods)) for s in record.settings)
    return replace(record, settings=tuple(settings))


def study_with_tests(record: StudyRecord) -> StudyRecord:
    """Return the record with a test of every difference that has an interval.

    An older record contains no rows. Accuracy still gets its exact interval, from its value and the number of rows;
    the intervals of the RMS gap and of its change are widened by the noise that the record gives; the other intervals
    stay as they are.
    """
    if not without_tests(result for setting in record.settings for result in setting.methods):
        return record
    settings = []
    for setting in record.settings:
        base = setting.methods[0]
        methods = (_with_tests(result, base, setting.sizes) for result in setting.methods)
        settings.append(replace(setting, methods=tuple(methods)))
    return replace(record, settings=tuple(settings))


def _with_tests(result: MethodResult, base: MethodResult, sizes: Mapping[str, int]) -> MethodResult:
    measures, differences = dict(result.measures), dict(result.differences)
    for split, n in sizes.items():
        accuracy, gap, noise = (f"{split}.{name}" for name in ("accuracy", "tpr_gap_rms", "tpr_gap_noise"))
        if accuracy in measures and measures[accuracy].low is not None:
            hits = round(measures[accuracy].value * n)
            if math.isclose(hits / n, measures[accuracy].value, rel_tol=1e-9, abs_tol=1e-12):
                measures[accuracy] = Estimate.of(share_interval(hits, n, LEVEL))
        shown = measures.get(gap)
        if shown is None or shown.low is None or noise not in measures:
            continue
        measures[gap] = replace(shown, low=_without_noise(shown.low, measures[noise].value))
        if gap in differences and noise in base.measures:
            ours = _without_noise(shown.value, measures[noise].value)
            theirs = _without_noise(base.measures[gap].value, base.measures[noise].value)
            differences[gap] = _widened(differences[gap], ours - theirs)
    return replace(result, measures=measures, differences={key: with_test(d) for key, d in differences.items()})


def _without_noise(gap: float, noise: float) -> float:
    return math.sqrt(max(0.0, gap**2 - noise**2))


def _widened(change: Estimate, noiseless: float) -> Estimate:
    """Return a change whose interval and p-value hold for the gaps as shown and for those without noise."""
    if change.low is None or change.high is None:
        return change
    moved = noiseless - change.value
    p_values = [normal_p_value(value, change.low, change.high) for value in (change.value, noiseless)]
    known = [p for p in p_values if p is not None]
    return Estimate(
        change.value,
        change.low + min(0.0, moved),
        change.high + max(0.0, moved),
        max(known) if len(known) == 2 else None,
    )
