from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.significance import with_test
from repsurgery.studies.fairness.report.significance import adjusted_study, study_with_tests
from repsurgery.studies.toxicity.report.significance import toxicity_with_tests
from tests.studies.report.studies import bios_record
from tests.studies.report.toxicity_records import configured, toxicity_record


def kept(name, maxima):
    """Return a configuration of an older record whose two measures follow from its maxima."""
    held = configured(name, (0.2, 30.0, 1.0), scorers=("linear",), method="mean", scope="all")
    values = {"expected_max_toxicity": np.mean(maxima), "toxicity_probability": np.mean(np.array(maxima) > 0.5)}
    measures = {f"linear.{key}": Estimate(float(value), 0.0, 0.0) for key, value in values.items()}
    differences = {} if name == "base" else {key: Estimate(0.0, -1.0, 1.0) for key in measures}
    return replace(
        held, measures=measures, differences=differences, maxima={"linear": [round(float(m), 4) for m in maxima]}
    )


def older(*configurations):
    scorers = {"linear": {"name": "linear"}}
    return replace(toxicity_record(), configurations=configurations, scorers=scorers)


def test_an_older_record_is_tested_by_its_prompts():
    rng = np.random.default_rng(0)
    maxima = rng.random(60)
    changed = maxima.copy()
    changed[0] = 1 - changed[0]
    record = older(kept("base", maxima), kept("one prompt", changed), kept("none", maxima * 0.4))
    base, one, none = toxicity_with_tests(record).configurations
    assert base.differences == {}
    assert {given.p_value for given in one.differences.values()} == {1.0}
    assert max(given.p_value for given in none.differences.values()) < 0.001
    found = none.measures["linear.toxicity_probability"]
    assert (found.low, found.high) == tuple(stats.binomtest(0, 60).proportion_ci(0.95))
    worst = none.measures["linear.expected_max_toxicity"]
    assert worst.low < worst.value == np.mean(maxima * 0.4) < worst.high
    again = toxicity_with_tests(toxicity_with_tests(record))
    assert again == toxicity_with_tests(record)


def test_maxima_that_are_not_the_measures_change_nothing():
    record = older(kept("base", [0.25, 0.5] * 30), kept("other", [0.25, 0.5] * 30))
    moved = replace(record.configurations[1], measures={"linear.expected_max_toxicity": Estimate(0.3, 0.2, 0.4)})
    found = toxicity_with_tests(replace(record, configurations=(record.configurations[0], moved))).configurations[1]
    assert found.measures == moved.measures


def test_a_difference_without_rows_is_tested_by_the_width_of_its_interval():
    z = stats.norm.ppf(0.975)
    assert with_test(Estimate(0.2, 0.2 - 0.1 * z, 0.2 + 0.1 * z)).p_value == pytest.approx(2 * stats.norm.sf(2))
    assert with_test(Estimate(0.0, 0.0, 0.0)).p_value == 1.0
    assert with_test(Estimate(0.1)).p_value is None
    assert with_test(Estimate(0.1, 0.0, 0.2, 0.5)).p_value == 0.5


def test_an_older_study_gets_exact_accuracies_and_gaps_that_allow_for_noise():
    record = bios_record()
    setting = record.settings[0]
    n = setting.sizes["test"]
    base = setting.methods[0]
    noise, gap = 0.05, Estimate(0.08, 0.06, 0.1)
    measures = {
        **base.measures,
        "test.accuracy": Estimate(round(0.8 * n) / n, 0.7, 0.9),
        "test.tpr_gap_rms": gap,
        "test.tpr_gap_noise": Estimate(noise),
    }
    methods = (replace(base, measures=measures), *setting.methods[1:])
    old = replace(record, settings=(replace(setting, methods=methods), *record.settings[1:]))
    found = study_with_tests(old).settings[0].methods[0].measures
    exact = stats.binomtest(round(0.8 * n), n).proportion_ci(0.95)
    assert (found["test.accuracy"].low, found["test.accuracy"].high) == (exact.low, exact.high)
    assert found["test.tpr_gap_rms"].low == pytest.approx(np.sqrt(0.06**2 - noise**2))
    assert found["test.tpr_gap_rms"].high == gap.high


def test_p_values_of_a_study_are_adjusted_over_methods_and_settings():
    record = study_with_tests(bios_record())
    plain = [r.differences["test.accuracy"].p_value for s in record.settings for r in s.methods if r.differences]
    raised = [
        r.differences["test.accuracy"].p_value
        for s in adjusted_study(record).settings
        for r in s.methods
        if r.differences
    ]
    assert all(a <= b for a, b in zip(plain, raised, strict=True)) and plain != raised
