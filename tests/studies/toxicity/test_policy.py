"""On-policy configurations at a price: natural shifts, steps with their own label, and several rounds."""

import math
from dataclasses import replace

import numpy as np
import pytest

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import DataError
from repsurgery.lm.twins import Twin
from repsurgery.studies.toxicity import Configuration
from repsurgery.studies.toxicity.collateral import own_divergences
from repsurgery.studies.toxicity.data import load_texts
from repsurgery.studies.toxicity.gradients import read_gradients
from repsurgery.studies.toxicity.policy import read_labelled, write_policy
from repsurgery.studies.toxicity.steps import read_steps, spread_out
from repsurgery.studies.toxicity.study import Study
from tests.studies.toxicity.small import make_files, small_spec
from tests.studies.toxicity.test_run import WordScorer

LINES = [
    "mean all kl=0.05",
    "mean all fit=on-policy kl=0.05",
    "mean all fit=on-policy kl=0.2",
    "natural all fit=on-policy kl=0.05",
    "natural-mean all fit=on-policy kl=0.05",
    "mean all fit=on-policy kl=0.05 credit=step",
    "mean all fit=on-policy kl=0.05 rounds=2",
    "mean selective fit=on-policy gate=calibrated kl=0.05",
    "mean selective fit=on-policy gate=soft kl=0.05",
    "mimic all fit=on-policy shrinkage=pooled kl=0.05",
]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    files = tmp_path_factory.mktemp("study")
    make_files(files)
    spec = small_spec(files, configurations=LINES, policy_prompts=20, policy_step=0.05, round_prompts=15)
    model, tokenizer = lm.load(spec.model)
    pair = [Twin(model, tokenizer)]
    return Study(spec, load_texts(spec, None), pair, {}, {"words": WordScorer()}, files / "work", progress=False)


@pytest.fixture(scope="module")
def fitted(study):
    return study.fitted(study.vectors())


@pytest.mark.parametrize("line", LINES)
def test_a_configuration_costs_what_it_states(study, fitted, line):
    one = fitted[line]
    assert one.facts["predicted_kl"] == pytest.approx(one.configuration.kl, rel=1e-4)
    # the prediction is that of the price on the function that steers, and of no other strength
    price = study.vectors().prices["final"]
    at = one.steering.function.at
    assert price.kl(at(one.steering.strength)) == pytest.approx(one.configuration.kl, rel=1e-4)
    assert price.kl(at(one.steering.strength / 2)) == pytest.approx(one.configuration.kl / 4, rel=1e-4)


def test_a_soft_gate_steers_some_steps_more_than_others(study, fitted):
    function = fitted["mean selective fit=on-policy gate=soft kl=0.05"].steering.function
    X = study.vectors().policy["final"].X
    moved = np.linalg.norm(function(X) - X, axis=1)
    assert moved.min() == 0 and len(np.unique(moved.round(6))) > 10
    hard = fitted["mean selective fit=on-policy gate=calibrated kl=0.05"].steering.function
    assert len(np.unique(np.linalg.norm(hard(X) - X, axis=1).round(4))) == 2


def test_a_larger_price_is_the_same_map_at_a_greater_strength(fitted):
    low, high = fitted["mean all fit=on-policy kl=0.05"], fitted["mean all fit=on-policy kl=0.2"]
    assert high.steering.strength == pytest.approx(2 * low.steering.strength, rel=1e-4)
    # the natural shift is another direction, not another length
    shifts = [
        next(iter(fitted[f"{m} all fit=on-policy kl=0.05"].steering.function.maps.values())).bias
        for m in ("mean", "natural")
    ]
    cosine = shifts[0] @ shifts[1] / math.prod(map(np.linalg.norm, shifts))
    assert abs(cosine) < 0.99


def test_the_price_from_steps_is_that_from_moments(study, fitted):
    price = study.vectors().prices["final"]
    function = fitted["mean all fit=on-policy kl=0.2"].steering.function
    assert price.kl(function) == pytest.approx(price.fisher.kl(function), rel=1e-6)


def test_a_second_round_fits_what_the_first_one_left(study, fitted):
    vectors = study.vectors()
    first = study._fit(Configuration("mean", "all", "on-policy"), vectors)
    policy, context = study.later_round(2, first.steering)
    assert len(policy.generations) == 15 * study.spec.policy_samples
    left = read_labelled(context, policy, study.labeller, "final", before=first.steering.function)
    means = {label: left.X[left.z == label].mean(axis=0) for label in ("toxic", "clean")}
    (shift,) = first.steering.function.maps.values()
    expected = shift.bias + means["clean"] - means["toxic"]
    two = fitted["mean all fit=on-policy kl=0.05 rounds=2"].steering
    (composed,) = two.function.maps.values()
    np.testing.assert_allclose(composed.bias, expected, rtol=1e-3, atol=1e-5)
    assert np.abs(expected - shift.bias).max() > 1e-3


def test_steps_have_the_label_of_their_own_credit(study):
    context = study.context(study.pair[0])
    policy = write_policy(context, study.labeller, study.texts.training.texts)
    by_text = read_labelled(context, policy, study.labeller, "final")
    by_step = read_labelled(context, policy, study.labeller, "final", credit="step")
    # a text of the source contributes all of its steps to the one, and only those that raised its score to the other
    assert 0 < np.sum(by_step.z == "toxic") < np.sum(by_text.z == "toxic")
    assert len(np.unique(by_text.groups[by_text.z == "toxic"])) > 2
    assert any(len(set(by_step.z[by_step.groups == g])) == 2 for g in np.unique(by_step.groups))
    assert all(len(set(by_text.z[by_text.groups == g])) == 1 for g in np.unique(by_text.groups))


def test_fewer_texts_are_read_where_a_limit_says_so(study):
    context = study.context(study.pair[0])
    policy = write_policy(context, study.labeller, study.texts.training.texts)
    limited = study.spec.__class__(**{**study.spec.to_dict(), "policy_texts": 3})
    context = context.__class__(*(getattr(context, n) if n != "spec" else limited for n in context.__slots__))
    some = read_labelled(context, policy, study.labeller, "final")
    assert [len(np.unique(some.groups[some.z == label])) for label in ("toxic", "clean")] == [3, 3]
    assert spread_out(range(10), 3) == [0, 3, 6] and spread_out([1, 2], 3) == [1, 2]


def test_a_later_round_draws_with_its_own_noise(study, fitted):
    nothing = replace(fitted["mean all fit=on-policy kl=0.05"].steering, strength=0.0)
    nothing = replace(nothing, function=nothing.function.interpolate(0.0))
    texts = [[g.text for g in study.later_round(n, nothing)[0].generations] for n in (1, 2)]
    first = write_policy(study.context(study.pair[0]), study.labeller, study.texts.training.texts[:15])
    assert texts[0] == [g.text for g in first.generations] != texts[1]


def test_stored_steps_belong_to_texts_that_ended_the_same_way(study):
    context = study.context(study.pair[0])
    (g,) = write_policy(context, study.labeller, study.texts.training.texts[:1]).generations[:1]
    for one in (replace(g, finished=False), replace(g, finished=True)):
        (steps,) = read_steps(context, [one], "final")
        assert len(steps) == len(one.tokens) + one.finished


def test_a_stored_steering_knows_the_strength_of_its_price(study, fitted):
    one = fitted["mean all fit=on-policy kl=0.2"]
    digest = one.steering.function.digest()
    stored = [rs.load(path) for path in (study.work / "steerings").glob("*.safetensors")]
    # the same map is stored for each price
    strengths = [f.origin.strength for f in stored if f.digest() == digest]
    assert strengths.count(one.steering.strength) == 1 and one.steering.strength != 1


def test_the_measured_price_is_the_divergence_on_own_texts(study, fitted, tmp_path):
    twin = study.pair[0]
    generations = lm.generate(twin.model, twin.tokenizer, list(study.texts.prompts.texts[:2]), n=2, progress=False)
    one = fitted["mean all fit=on-policy kl=0.05"].steering
    measured = own_divergences(twin, generations, {"one": one}, digests={"model": "m"}, folder=tmp_path)
    sites = {one.site: one.function.at(one.strength)}
    found = lm.kl_divergence(twin.model, twin.tokenizer, generations, sites, direction="base-steered", progress=False)
    assert measured["one"] == pytest.approx(np.mean([v for d in found for v in d.values]))
    other = lm.kl_divergence(twin.model, twin.tokenizer, generations, sites, progress=False)
    assert measured["one"] != pytest.approx(np.mean([v for d in other for v in d.values]), rel=1e-6)


def test_read_steps_are_those_of_the_model(study):
    context = study.context(study.pair[0])
    policy = write_policy(context, study.labeller, study.texts.training.texts[:3])
    expected = lm.states_along(context.model, context.tokenizer, policy.generations, progress=False)
    for stored, read in zip(read_steps(context, policy.generations, "final"), expected, strict=True):
        np.testing.assert_allclose(stored, read, atol=1e-5)


def test_a_scorer_that_finds_nothing_toxic_says_so(study):
    class Nothing(WordScorer):
        name, digest = "nothing", "0"

        def __call__(self, texts):
            return [0.0 for _ in texts]

    context = study.context(study.pair[0])
    policy = write_policy(context, Nothing(), study.texts.training.texts)
    with pytest.raises(DataError, match=r"rated 0 as toxic and \d+ as clean.*move policy_toxic"):
        read_labelled(context, policy, Nothing(), "final")
    with pytest.raises(DataError, match="fewer than two prompts"):
        read_gradients(context, policy, Nothing(), "final")
