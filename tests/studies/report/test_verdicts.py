"""Verdicts follow one rule; each boundary of it is met from both sides."""

from dataclasses import replace

import pytest

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.fairness.report.significance import study_with_tests
from repsurgery.studies.fairness.report.verdicts import (
    direction,
    judge,
    judge_change,
    judge_neighbours,
    judge_value,
    same_model,
)
from tests.studies.report.studies import bios_record, dialect_record, method_result, record_of, setting_of, sweep_result

LLAMA = {"name": "meta-llama/Llama-2-7b-hf"}
BERT = {"name": "google-bert/bert-base-uncased"}


def verdict(record, method, measure, setting=0):
    record = study_with_tests(record)
    held = record.settings[setting]
    return judge(record, held, held.method(method), measure)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.150, 0.161, "agrees"),
        (0.155, 0.161, "agrees"),
        (0.1554, 0.161, "agrees"),
        (0.1556, 0.161, "differs by +.003"),
        (0.150, 0.155, "agrees"),
        (0.150, 0.1546, "agrees"),
        (0.150, 0.1544, "differs by +.003"),
        (None, None, "differs by +.003"),
    ],
)
def test_a_published_value_agrees_when_the_interval_as_shown_holds_it(low, high, said):
    assert judge_value(Estimate(0.158, low, high), 0.155) == said


def test_without_an_interval_only_the_shown_value_agrees():
    assert judge_value(Estimate(0.1551), 0.155) == "agrees"
    assert judge_value(Estimate(0.143), 0.155) == "differs by −.012"


@pytest.mark.parametrize(
    ("value", "p_value", "said"),
    [
        (-0.01, 0.05, "same direction"),
        (-0.01, 0.06, "no difference seen"),
        (0.01, 0.06, "no difference seen"),
        (0.01, 0.01, "opposite"),
        (-0.01, None, "no difference seen"),
    ],
)
def test_a_change_is_seen_when_its_test_sees_it(value, p_value, said):
    assert judge_change(Estimate(value, value - 0.001, value + 0.001, p_value), [-0.02, -0.07]) == said


@pytest.mark.parametrize(
    ("changes", "sign"),
    [
        ([-0.018, -0.075, -0.010], -1),
        ([0.797 - 0.799, -0.006, 0.0], -1),
        ([0.001, -0.001, 0.0], 0),
        ([0.798 - 0.799, 0.845 - 0.844], 0),
        ([-0.001], 0),
        ([0.002], 1),
        ([0.002, -0.002], 0),
        ([], 0),
    ],
)
def test_published_changes_have_a_direction_when_all_beyond_rounding_agree(changes, sign):
    assert direction(changes) == sign


def test_changes_without_a_published_direction_get_no_verdict():
    assert judge_change(Estimate(-0.1, -0.2, -0.05, 0.001), [0.001, -0.001]) == "no direction published"


@pytest.mark.parametrize(
    ("experiment", "data", "encoder", "model"),
    [
        ("bios", "bias_in_bios", "google-bert/bert-base-uncased", "BERT-base"),
        ("bios", "bias_in_bios", "openai-community/gpt2", "GPT-2"),
        ("bios", "bias_in_bios", "meta-llama/Llama-2-7b-chat-hf", "Llama2-7b"),
        ("dialect", "twitteraae", "meta-llama/Llama-2-7b-hf", "Llama2-7b"),
        ("dialect", "twitteraae", "openai-community/gpt2", None),
        ("dialect", "bias_in_bios", "meta-llama/Llama-2-7b-hf", None),
        ("bios", "bias_in_bios_samples", "google-bert/bert-base-uncased", None),
        ("bios", "bias_in_bios", "bert-base-cased", None),
        ("gap", "bias_in_bios", "google-bert/bert-base-uncased", None),
    ],
)
def test_values_compare_only_for_the_published_encoder_on_the_published_data(experiment, data, encoder, model):
    counts = {"a": {"f": 150_000, "m": 44_000}}
    choices = {"experiment": experiment, "encoder": {"name": "alias", "model": encoder}}
    settings = bios_record().settings
    assert same_model(record_of(settings, data={"name": data, "counts": counts}, **choices)) == model
    sample = {"a": {"f": 1_000, "m": 400}}
    assert same_model(record_of(settings, data={"name": data, "counts": sample}, **choices)) is None


def test_the_published_model_is_held_to_values():
    record = bios_record(encoder=BERT)
    assert verdict(record, "mimic", "tpr_gap").published == ".093"
    assert verdict(record, "mimic", "tpr_gap").verdict == "agrees"
    assert verdict(record, "mean", "tpr_gap").verdict == "differs by +.016"
    assert verdict(record, "base", "accuracy").verdict == "agrees"
    assert verdict(record, "trace", "tpr_gap").verdict == "not published"


def test_another_model_is_held_to_directions():
    record = bios_record()
    assert verdict(record, "base", "tpr_gap").verdict == "not comparable"
    assert verdict(record, "leace", "tpr_gap").published == "−.018, −.075, −.010"
    assert verdict(record, "leace", "tpr_gap").verdict == "same direction"
    assert verdict(record, "mean", "tpr_gap").verdict == "no difference seen"
    assert verdict(record, "trace", "tpr_gap").verdict == "not published"


def test_a_gap_that_grows_is_called_opposite():
    base = (0.10, 0.8)
    results = [method_result("base", *base, base=base), method_result("mimic", 0.15, 0.7, base=base)]
    record = record_of([setting_of(results)])
    assert verdict(record, "mimic", "tpr_gap").verdict == "opposite"
    assert verdict(record, "mimic", "accuracy").verdict == "same direction"


def test_accuracies_printed_in_error_are_marked_and_their_correction_is_taken():
    base = (0.143, 0.789)
    results = [method_result("base", *base, base=base, half=0.001), method_result("mean", 0.139, 0.797, base=base)]
    record = record_of([setting_of(results)], encoder=LLAMA)
    assert verdict(record, "base", "accuracy").published == ".786† (.789)"
    assert verdict(record, "base", "accuracy").verdict == "agrees"
    assert verdict(record, "mean", "accuracy").verdict == "differs by +.008"


def test_the_post_processing_is_held_to_directions_even_on_the_published_model():
    base = (0.155, 0.799)
    results = [
        method_result("base", *base, base=base),
        sweep_result(0.0, tpr=0.12, base=base),
        sweep_result(0.0, criterion="equal-opportunity", tpr=0.02, base=base),
    ]
    record = record_of([setting_of(results)], encoder=BERT)
    name = "xian demographic-parity 0 predicted"
    assert verdict(record, name, "tpr_gap").published == "−.009, −.056"
    assert verdict(record, name, "tpr_gap").verdict == "same direction"
    assert verdict(record, "xian equal-opportunity 0 predicted", "tpr_gap").verdict == "not published"


def test_the_dialect_study_is_judged_ratio_by_ratio():
    record = dialect_record(ratios=(0.5, 0.62, 0.95))
    assert verdict(record, "mimic", "tpr_gap", 0).published == "−.016"
    assert verdict(record, "mimic", "tpr_gap", 1).verdict == "not published"
    assert verdict(record, "mimic", "tpr_gap", 2).published == "−.107"
    assert verdict(record, "mean", "accuracy", 0).verdict == "no direction published"
    same = dialect_record(ratios=(0.95,), data={"name": "twitteraae", "counts": {"a": {"b": 176_000}}}, encoder=LLAMA)
    assert verdict(same, "base", "tpr_gap").verdict == "agrees"
    assert verdict(same, "mimic", "tpr_gap").verdict == "differs by −.050"


def test_a_ratio_that_suffered_from_rounding_is_still_found():
    record = dialect_record(ratios=(0.7 + 0.1,))
    assert record.settings[0].ratio != 0.8
    assert verdict(record, "mimic", "tpr_gap").published == "−.093"


def test_changes_of_neighbours_are_held_to_directions():
    record = study_with_tests(bios_record())
    held = record.settings[0]
    assert judge_neighbours(record, held.method("mimic"), "8").verdict == "same direction"
    assert judge_neighbours(record, held.method("trace"), "8").verdict == "not published"
    assert judge_neighbours(record, held.method("base"), "8").verdict == "not comparable"
    for change, verdict in (
        (Estimate(-0.03, -0.07, 0.01, 0.2), "no difference seen"),
        (Estimate(0.1, 0.05, 0.15, 0.001), "opposite"),
    ):
        result = replace(held.method("mean"), differences={"neighbours.8": change})
        assert judge_neighbours(record, result, "8").verdict == verdict
    llama = bios_record(encoder=LLAMA)
    assert judge_neighbours(llama, held.method("base"), "1").published == ".863"
    assert judge_neighbours(llama, held.method("base"), "1").verdict == "agrees"
    assert judge_neighbours(llama, held.method("base"), "128").verdict == "differs by −.041"
