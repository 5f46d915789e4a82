"""Every difference of a record with the p-value of its test, and what older records still tell about theirs."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from scipy.special import ndtr, ndtri

from repsurgery.metrics import Mean, holm, paired_bootstrap
from repsurgery.metrics.intervals import share_interval
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.fairness.record import MethodResult, StudyRecord
from repsurgery.studies.fairness.report.rows import is_sweep
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.rows import EMT, PROBABILITY

__all__ = [
    "adjusted",
    "adjusted_study",
    "adjusted_toxicity",
    "study_with_tests",
    "toxicity_with_tests",
    "with_test",
    "without_tests",
]

_LEVEL = 0.95
_ROUNDED = 5e-5
"""Half of the last digit of the maxima that a record keeps."""
Row = TypeVar("Row", Configured, MethodResult)


def with_test(given: Estimate) -> Estimate:
    """Return a difference with its p-value; where no test was kept, that of a normal law as wide as its interval."""
    if given.p_value is not None or given.low is None or given.high is None:
        return given
    return replace(given, p_value=_normal(given.value, given.low, given.high))


def _normal(value: float, low: float, high: float) -> float | None:
    error = (high - low) / (2 * ndtri((1 + _LEVEL) / 2))
    if error == 0:
        return 1.0 if value == 0 else None
    return float(2 * ndtr(-abs(value) / error))


def adjusted(given: Sequence[Estimate | None]) -> list[Estimate | None]:
    """Return differences with p-values adjusted by Holm's method over all of them that have one."""
    known = [i for i, one in enumerate(given) if one is not None and one.p_value is not None]
    raised = dict(zip(known, holm([given[i].p_value for i in known]), strict=True))  # type: ignore[union-attr, misc]
    return [replace(one, p_value=raised[i]) if one is not None and i in raised else one for i, one in enumerate(given)]


def _adjusted_rows(rows: Iterable[Row]) -> list[Row]:
    held = list(rows)
    names = dict.fromkeys(name for row in held for name in row.differences)
    columns = {name: adjusted([row.differences.get(name) for row in held]) for name in names}
    return [
        replace(row, differences={name: found for name in row.differences if (found := columns[name][i]) is not None})
        for i, row in enumerate(held)
    ]


def adjusted_toxicity(record: ToxicityRecord) -> ToxicityRecord:
    """Return the record with p-values adjusted, for each measure, over its configurations."""
    return replace(record, configurations=tuple(_adjusted_rows(record.configurations)))


def adjusted_study(record: StudyRecord) -> StudyRecord:
    """Return the record with p-values adjusted, for each measure, over settings and methods; sweeps on their own."""
    every = [result for setting in record.settings for result in setting.methods]
    found: dict[int, MethodResult] = {}
    for chosen in (True, False):
        rows = [result for result in every if is_sweep(result) == chosen]
        found |= {id(old): new for old, new in zip(rows, _adjusted_rows(rows), strict=True)}
    settings = (replace(s, methods=tuple(found[id(result)] for result in s.methods)) for s in record.settings)
    return replace(record, settings=tuple(settings))


def without_tests(rows: Iterable[Row]) -> bool:
    """Return whether differences come from a record of a time that kept intervals but no tests."""
    differences = [given for row in rows for given in row.differences.values() if given.low is not None]
    return bool(differences) and all(given.p_value is None for given in differences)


def toxicity_with_tests(record: ToxicityRecord) -> ToxicityRecord:
    """Return the record with a test of every difference that has an interval.

    In an older record, intervals and tests of the two measures whose values by prompt were kept are computed anew; of
    the others the interval stays.
    """
    if not without_tests(record.configurations):
        return record
    found: dict[str, dict[str, tuple[Estimate, Estimate | None]]] = {}
    for scorer in record.scorers:
        for measure, value in _BY_PROMPT.items():
            found[f"{scorer}.{measure}"] = _from_maxima(record, scorer, f"{scorer}.{measure}", value)
    return replace(record, configurations=tuple(_renewed(c, found) for c in record.configurations))


_BY_PROMPT: Mapping[str, Callable[[float], float]] = {EMT: lambda m: m, PROBABILITY: lambda m: float(m > 0.5)}


def _from_maxima(
    record: ToxicityRecord, scorer: str, name: str, value: Callable[[float], float]
) -> dict[str, tuple[Estimate, Estimate | None]]:
    means = {}
    for c in record.configurations:
        kept = c.maxima.get(scorer, [])
        mean = Mean(np.array([math.nan if m is None else value(m) for m in kept]))
        # maxima of other prompts than the measure's would give another value
        if name in c.measures and kept and abs(mean(np.ones(len(kept))) - c.measures[name].value) <= _ROUNDED:
            means[c.name] = mean
    base = record.configurations[0].name
    if base not in means or len({len(mean.values) for mean in means.values()}) != 1:
        return {}
    drawn = paired_bootstrap(
        means,
        len(means[base].values),
        resamples=int(record.spec.get("resamples", 1000)),
        seed=int(record.spec.get("seed", 0)),
        reference=base,
    )
    return {
        key: (Estimate.of(one.estimate), None if one.difference is None else Estimate.of(one.difference, one.p_value))
        for key, one in drawn.items()
    }


def _renewed(c: Configured, found: Mapping[str, Mapping[str, tuple[Estimate, Estimate | None]]]) -> Configured:
    measures, differences = dict(c.measures), {name: with_test(given) for name, given in c.differences.items()}
    for name, by_configuration in found.items():
        if c.name in by_configuration:
            found_again, difference = by_configuration[c.name]
            measures[name] = replace(found_again, value=c.measures[name].value)
            if difference is not None:
                differences[name] = replace(difference, value=c.differences[name].value)
    return replace(c, measures=measures, differences=differences)


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def study_with_tests(record: StudyRecord) -> StudyRecord:
    """Return the record with a test of every difference that has an interval.

    An older record kept no rows. Accuracy still gets its exact interval, from its value and the number of rows; the
    RMS gap and its change are widened by the noise that the record names; of the others the interval stays.
    """
    if not without_tests(result for setting in record.settings for result in setting.methods):
        return record
    settings = []
    for setting in record.settings:
        base = setting.methods[0]
        methods = (_renewed_result(result, base, setting.sizes) for result in setting.methods)
        settings.append(replace(setting, methods=tuple(methods)))
    return replace(record, settings=tuple(settings))


def _renewed_result(result: MethodResult, base: MethodResult, sizes: Mapping[str, int]) -> MethodResult:
    measures, differences = dict(result.measures), dict(result.differences)
    for split, n in sizes.items():
        accuracy, gap, noise = (f"{split}.{name}" for name in ("accuracy", "tpr_gap_rms", "tpr_gap_noise"))
        if accuracy in measures and measures[accuracy].low is not None:
            hits = round(measures[accuracy].value * n)
            if _close(hits / n, measures[accuracy].value):
                measures[accuracy] = Estimate.of(share_interval(hits, n, _LEVEL))
        held = measures.get(gap)
        if held is None or held.low is None or noise not in measures:
            continue
        measures[gap] = replace(held, low=_without(held.low, measures[noise].value))
        if gap in differences and noise in base.measures:
            ours = _without(held.value, measures[noise].value)
            theirs = _without(base.measures[gap].value, base.measures[noise].value)
            differences[gap] = _with_and_without(differences[gap], ours - theirs)
    return replace(
        result, measures=measures, differences={name: with_test(given) for name, given in differences.items()}
    )


def _without(gap: float, noise: float) -> float:
    return math.sqrt(max(0.0, gap**2 - noise**2))


def _with_and_without(given: Estimate, plain: float) -> Estimate:
    """Return a change that holds for the gaps as shown and for those without noise, which differ by ``plain``."""
    if given.low is None or given.high is None:
        return given
    p_values = [_normal(value, given.low, given.high) for value in (given.value, plain)]
    moved = plain - given.value
    known = [p for p in p_values if p is not None]
    return Estimate(
        given.value,
        given.low + min(0.0, moved),
        given.high + max(0.0, moved),
        max(known) if len(known) == 2 else None,
    )
