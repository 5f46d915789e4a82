"""An outcome is consistent, and stays with the maps and the use that it was measured of."""

import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

import repsurgery as rs
from repsurgery.errors import DataError, ParameterError

FACTS = {
    "judge": "minilm-judge",
    "judge_digest": "0ddba11",
    "auc": 0.97,
    "measure": "share",
    "source": "rude",
    "target": "courteous",
    "base": 0.63,
    "steered": 0.24,
    "effect": -0.39,
    "low": -0.45,
    "high": -0.33,
    "p": 0.0002,
    "kl": 0.098,
    "wikitext_ratio": 1.04,
    "prompts": 60,
    "samples": 5,
    "tokens": 25,
}
PLACE = {"model": "smollm2-135m", "fingerprint": "c0ffee", "site": "final", "strength": 1.07, "positions": "all"}


def outcome(**changes):
    return rs.Outcome(**FACTS | changes)


@pytest.fixture
def measured():
    shift = rs.SteeringFunction({None: rs.Translation([1.0, 2.0])}, origin=rs.Origin(**PLACE))
    return shift.with_outcome(outcome())


def test_an_outcome_survives_json_bit_for_bit():
    # 0.1 + 0.2 has no short decimal; numbers of NumPy become plain ones
    held = outcome(base=0.1 + 0.2, steered=0.0, effect=-(0.1 + 0.2), high=0, kl=np.float32(0.1), prompts=np.int64(60))
    back = rs.Outcome.from_dict(json.loads(json.dumps(held.to_dict())))
    assert back == held
    assert back.base.hex() == (0.1 + 0.2).hex()
    assert (type(held.kl), type(held.prompts)) == (float, int)
    assert back != outcome()
    assert list(outcome().to_dict()) == list(FACTS)


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        *(({name: math.nan}, ParameterError, f"{name} is nan") for name in ("base", "low", "p", "kl", "auc")),
        *(({name: math.inf}, ParameterError, f"{name} is inf") for name in ("high", "kl", "wikitext_ratio")),
        *(({name: None}, ParameterError, f"{name} is None") for name in ("base", "effect", "p", "kl", "prompts")),
        *(({name: True}, ParameterError, f"{name} is True") for name in ("base", "p", "prompts", "auc")),
        *(({name: 0}, ParameterError, "at least 1") for name in ("prompts", "samples", "tokens")),
        *(({name: ""}, ParameterError, "not empty") for name in ("judge", "source", "target")),
        ({"kl": 10**400}, ParameterError, "finite"),
        ({"prompts": 60.0}, ParameterError, "whole number"),
        ({"judge_digest": None}, ParameterError, "judge_digest"),
        ({"measure": "median"}, ParameterError, "share"),
        ({"p": 1.001}, DataError, "between 0 and 1"),
        ({"p": -0.001}, DataError, "between 0 and 1"),
        ({"auc": 1.2}, DataError, "between 0 and 1"),
        ({"base": 1.63, "steered": 1.24}, DataError, "between 0 and 1"),
        ({"kl": -1e-3}, DataError, "not negative"),
        ({"wikitext_ratio": 0.0}, DataError, "positive"),
        ({"effect": -0.39 + 2e-9}, DataError, "must be equal"),
        ({"effect": 0.39, "low": 0.33, "high": 0.45}, DataError, "must be equal"),
        ({"high": -0.4}, DataError, "outside its interval"),
        ({"low": -0.38}, DataError, "outside its interval"),
        ({"low": -0.33, "high": -0.45}, DataError, "outside its interval"),
    ],
)
def test_what_cannot_have_been_measured_is_refused(changes, error, says):
    with pytest.raises(error, match=says):
        outcome(**changes)


def test_rounding_is_not_a_contradiction():
    outcome(effect=-0.39 + 5e-10, high=-0.39, low=-0.39)
    outcome(base=0.5, steered=0.5, effect=0.0, low=0.0, high=0.0, p=1.0, kl=0.0, auc=None, wikitext_ratio=None)
    outcome(judge_digest="")


@pytest.mark.parametrize("name", list(FACTS))
def test_every_field_is_needed_and_no_other_is_taken(name):
    with pytest.raises(DataError, match=rf"\['{name}'\] are missing"):
        rs.Outcome.from_dict({key: value for key, value in FACTS.items() if key != name})
    with pytest.raises(DataError, match=r"\['colour'\] are unknown"):
        rs.Outcome.from_dict(FACTS | {"colour": "red"})
    assert rs.Outcome.from_dict(FACTS) == outcome()


@pytest.mark.parametrize("plain", [[], ["judge"], "judge", 3, {}, {1: 2}])
def test_what_is_not_a_table_is_refused(plain):
    with pytest.raises(DataError, match="exactly the fields"):
        rs.Outcome.from_dict(plain)


def test_the_words_give_effect_and_price():
    assert outcome().words() == (
        "On 60 prompts that took no part in choosing it, the share of continuations judged rude fell from 63 % to 24 % "
        "(−39 points, 95 % interval −45 to −33, p = .0002; judged by minilm-judge, AUC .97). It costs .098 nats per "
        "token and raises the perplexity of WikiText by 4 %."
    )
    assert outcome(measure="mean", auc=None, wikitext_ratio=None, p=0.034).words() == (
        "On 60 prompts that took no part in choosing it, the mean score for rude fell from .630 to .240 "
        "(−.390, 95 % interval −.450 to −.330, p = .034; judged by minilm-judge). It costs .098 nats per token."
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"steered": 0.655, "effect": 0.025, "low": -0.01, "high": 0.06}, "rose from 63 % to 65.5 % (+2.5 points"),
        ({"steered": 0.655, "effect": 0.025, "low": -0.01, "high": 0.06}, "95 % interval −1 to +6"),
        ({"steered": 0.63, "effect": 0.0, "low": -0.0, "high": 0.0}, "stayed at 63 % (0 points, 95 % interval 0 to 0"),
        ({"p": 0.00001}, "p < .0001;"),
        ({"p": 1.0}, "p = 1;"),
        ({"p": 0.5}, "p = .5;"),
        ({"prompts": 1}, "On 1 prompt that"),
        ({"kl": 1.25}, "costs 1.250 nats"),
        ({"kl": 0.0001}, "costs less than .001 nats"),
        ({"kl": 0.0}, "costs 0 nats"),
        ({"wikitext_ratio": 0.98}, "lowers the perplexity of WikiText by 2 %."),
        ({"wikitext_ratio": 1.0001}, "leaves the perplexity of WikiText as it is."),
        ({"wikitext_ratio": 9e5}, "multiplies the perplexity of WikiText by 900,000."),
    ],
)
def test_the_words_follow_the_numbers(changes, says):
    assert says in outcome(**changes).words()
    assert says not in outcome().words()


def test_an_outcome_leaves_digest_certificate_and_steering_alone(measured):
    bare = measured.with_outcome(None)
    assert bare.outcome is None
    assert measured.digest() == bare.digest()
    assert measured.certificate is bare.certificate
    assert (measured(np.eye(2)) == bare(np.eye(2))).all()
    assert pickle.loads(pickle.dumps(measured)).outcome == outcome()
    with pytest.raises(ParameterError, match="must be an Outcome"):
        measured.with_outcome(FACTS)


CHANGES = [
    {"model": "gpt2"},
    {"model": None},
    {"fingerprint": "0ddba11"},
    {"configuration": "c0ffee"},
    {"site": "layers.15"},
    {"site": None},
    {"strength": 1.0},
    {"strength": None},
    {"positions": "generated"},
]


@pytest.mark.parametrize("facts", CHANGES, ids=repr)
def test_an_outcome_is_dropped_with_what_it_was_measured_of(measured, facts):
    moved = measured.with_origin(**facts)
    assert moved.outcome is None
    assert moved.with_origin(**PLACE).outcome is None
    assert measured.with_origin(rs.Origin(**PLACE | facts)).outcome is None
    assert measured.with_origin(rs.Origin(**PLACE)).outcome == outcome()
    kept = {name: PLACE[name] for name in facts if name in PLACE}
    assert measured.with_origin(**kept, licence="CC0", data="da7a").outcome == outcome()


def test_a_use_that_is_only_named_is_the_same_use(measured):
    # without a strength and positions a function is used at strength 1 and all positions
    silent = replace(measured, origin=rs.Origin(site="final"))
    assert silent.with_origin(strength=1.0, positions="all").outcome == outcome()
    assert silent.with_origin(strength=1.07).outcome is None
    assert silent.with_origin(positions="last").outcome is None


def test_another_map_has_no_outcome(measured):
    assert measured.after(measured).outcome is None
    assert measured.interpolate(0.5).outcome is None
    assert measured.interpolate(1.0).outcome is None
    assert measured.astype(np.float32).outcome is None
    assert measured.inverse(measured(np.eye(2))) == pytest.approx(np.eye(2))


def test_price_and_certificate_leave_the_outcome_alone(measured):
    priced = measured.with_price(rs.price.Price(rs.Fisher(9, np.eye(2))))
    assert priced.outcome == outcome()
    assert priced.after(measured).price is None
    G = np.random.default_rng(0).normal(size=(10, 2)) + 1
    natural = rs.NaturalSteering(kl=0.05).fit(G, fisher=rs.Fisher(9, np.eye(2))).steering_
    assert natural.with_outcome(outcome()).sealed(natural.certificate).outcome == outcome()
