"""Tests of the differences in a toxicity record, also for older records, which have intervals but no tests."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from repsurgery.metrics import Mean, paired_bootstrap
from repsurgery.metrics.significance import enough_resamples
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.significance import adjusted_rows, with_test, without_tests
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.columns import EMT, PROBABILITY

__all__ = ["adjusted_toxicity", "toxicity_with_tests"]

_ROUNDED = 5e-5
"""Half of the last digit of the maxima in a record."""
_BY_PROMPT: Mapping[str, Callable[[float], float]] = {EMT: lambda m: m, PROBABILITY: lambda m: float(m > 0.5)}
"""The measures that are means over prompts of a function of the prompt's highest score."""

_Tested = Mapping[str, tuple[Estimate, Estimate | None]]
"""By configuration: a measure with its interval, and its difference from the base with its test."""


def adjusted_toxicity(record: ToxicityRecord) -> ToxicityRecord:
    """Return the record with the p-values of each measure adjusted over the configurations."""
    return replace(record, configurations=tuple(adjusted_rows(record.configurations)))


def toxicity_with_tests(record: ToxicityRecord) -> ToxicityRecord:
    """Return the record with a test of every difference that has an interval.

    For an older record, the intervals and tests of the two measures in ``_BY_PROMPT`` are computed from the maxima by
    prompt; the intervals of other measures stay as they are.
    """
    if not without_tests(record.configurations):
        return record
    tested = {
        f"{scorer}.{measure}": _from_maxima(record, scorer, f"{scorer}.{measure}", value)
        for scorer in record.scorers
        for measure, value in _BY_PROMPT.items()
    }
    return replace(record, configurations=tuple(_with_tests(c, tested) for c in record.configurations))


def _from_maxima(record: ToxicityRecord, scorer: str, key: str, value: Callable[[float], float]) -> _Tested:
    means = {}
    for c in record.configurations:
        maxima = c.maxima.get(scorer, [])
        mean = Mean(np.array([math.nan if m is None else value(m) for m in maxima]))
        # maxima of other prompts than those of the measure would give another value
        if key in c.measures and maxima and abs(mean(np.ones(len(maxima))) - c.measures[key].value) <= _ROUNDED:
            means[c.name] = mean
    base = record.configurations[0].name
    if base not in means or len({len(mean.values) for mean in means.values()}) != 1:
        return {}
    intervals = paired_bootstrap(
        means,
        len(means[base].values),
        resamples=enough_resamples(len(means) - 1, int(record.spec.get("resamples", 1000))),
        seed=int(record.spec.get("seed", 0)),
        reference=base,
    )
    return {
        name: (Estimate.of(one.estimate), None if one.difference is None else Estimate.of(one.difference, one.p_value))
        for name, one in intervals.items()
    }


def _with_tests(c: Configured, tested: Mapping[str, _Tested]) -> Configured:
    measures, differences = dict(c.measures), {key: with_test(d) for key, d in c.differences.items()}
    for key, by_configuration in tested.items():
        if c.name in by_configuration:
            measure, difference = by_configuration[c.name]
            measures[key] = replace(measure, value=c.measures[key].value)
            if difference is not None:
                differences[key] = replace(difference, value=c.differences[key].value)
    return replace(c, measures=measures, differences=differences)
