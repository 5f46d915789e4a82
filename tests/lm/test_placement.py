"""`lm.Placement`: one steering at one site, strength and positions, wherever a steering is taken."""

import warnings
from dataclasses import FrozenInstanceError
from itertools import combinations

import gguf
import numpy as np
import peft
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import (
    ExtrapolationWarning,
    FoldError,
    OriginWarning,
    ParameterError,
    ShapeError,
    SiteError,
    SteeringWarning,
)
from repsurgery.gates import LabelsGate
from tests.certificates.test_outcome import outcome
from tests.lm.folding import dense_map, logits, same, translation
from tests.lm.tiny_models import WIDTH, tiny_model, tiny_tokenizer
from tests.lm.tools import gated, split_gate
from tests.lm.tools import prompts as padded

PROMPTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8"]
AFTER = ["w7 w8", "w9", "w1"]
QUIET = {"progress": False}
SAMPLED = {"n": 2, "max_new_tokens": 5, **QUIET}
PLACES = [("layers.0", 0.5, "all"), ("final", 0.25, "generated"), ("layers.1.attn", 1.0, "last")]
"""A site, a strength and positions."""


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


def function(seed=1, **origin):
    return rs.SteeringFunction({None: dense_map(WIDTH, seed=seed)}, origin=rs.Origin(**origin))


def shift(seed=1, **origin):
    return rs.SteeringFunction({None: translation(WIDTH, seed)}, origin=rs.Origin(**origin))


def steered(model, sites, **how):
    with lm.steer(model, sites, **how):
        return logits(model)


def nested(model, first, then):
    with lm.steer(model, first):
        return steered(model, then)


def written(model, steering, **how):
    return [g.tokens for g in lm.generate(model, tiny_tokenizer(), PROMPTS, steering=steering, **how, **SAMPLED)]


def functions_that_take_a_steering(model, tokenizer, positions):
    """Return, by name, functions of a steering and of how it is used, which return something that can be compared."""
    generations = lm.generate(model, tokenizer, PROMPTS, **SAMPLED)
    documents = {"max_length": 8, **QUIET}
    functions = {
        "generate": lambda s, **how: written(model, s, **how),
        "rows": lambda s, **how: written(model, [lm.Choice(s, **how)] * 3),
        "kl_divergence": lambda s, **how: lm.kl_divergence(model, tokenizer, generations, s, **how, **QUIET),
        "log_likelihoods": lambda s, **how: lm.log_likelihoods(
            model, tokenizer, PROMPTS, AFTER, steering=s, **how, **QUIET
        ),
    }
    if positions != "last":
        functions["document_perplexity"] = lambda s: lm.document_perplexity(
            model, tokenizer, PROMPTS, {"steered": s}, **documents
        )
    return functions


@pytest.mark.parametrize(("site", "strength", "positions"), PLACES)
def test_a_placement_steers_like_its_parts(model, tokenizer, site, strength, positions):
    f = function()
    placement, parts = lm.Placement(f, site, strength, positions), {site: f}
    how = {"strength": strength, "positions": positions}
    expected = steered(model, parts, **how)
    assert torch.equal(steered(model, placement), expected)
    assert torch.equal(steered(model, [placement]), expected)
    assert not torch.equal(steered(model, placement.scaled(0.5)), expected)
    for name, run in functions_that_take_a_steering(model, tokenizer, positions).items():
        known = {site: f.with_origin(strength=strength, positions=positions)}
        meant = run(known) if name == "document_perplexity" else run(parts, **how)
        assert run(placement) == meant, name
        # few texts of a random model change, and every likelihood does
        assert name in ("generate", "rows") or run(placement.scaled(0)) != meant, name


def test_a_row_is_a_placement_or_a_list_of_them(model, tokenizer):
    first, then = lm.Placement(shift(1), "layers.0", 0.5), lm.Placement(shift(2), "layers.1", 1.0, "generated")
    rows = [first, None, [first, then]]
    assert written(model, rows) == written(model, [lm.Choice({"layers.0": first.function}, 0.5), None, rows[2]])
    composed = [lm.Choice({"layers.0": first.function}, 0.5), lm.Choice({"layers.1": then.function}, 1.0, "generated")]
    assert written(model, [rows[2]] * 3) == written(model, [composed] * 3)
    assert written(model, [lm.Choice([first, then])] * 3) == written(model, [composed] * 3)
    assert written(model, [[first]] * 3) != written(model, [composed] * 3)
    # defaults of the call are for entries that state none
    assert written(model, rows, strength=0.0, positions="last") == written(model, rows)
    ids, mask = padded()
    with lm.steer_rows(model, [first, None, [first, then]]) as of_rows, torch.no_grad():
        model(input_ids=ids, attention_mask=mask)
    assert of_rows.visits == {"layers.0": 1, "layers.1": 1}


def test_a_placement_wins_over_the_origin(model):
    f = function(site="layers.0", strength=0.5, positions="last")
    stated = {"site": "layers.1", "strength": 0.25, "positions": "generated"}
    with pytest.warns(OriginWarning, match="fitted at 'layers.0' and is used at 'layers.1'"):
        found = steered(model, lm.Placement(f, **stated))
    bare = rs.SteeringFunction(f.maps)
    assert torch.equal(found, steered(model, {"layers.1": bare}, strength=0.25, positions="generated"))
    assert not torch.equal(found, steered(model, f))


def test_the_origin_fills_what_is_left_open():
    f = function(site="layers.0", strength=0.5, positions="last")
    for given_here, expected in (
        ({}, ("layers.0", 0.5, "last")),
        ({"site": "final"}, ("final", 0.5, "last")),
        ({"strength": 0}, ("layers.0", 0.0, "last")),
        ({"positions": "all"}, ("layers.0", 0.5, "all")),
    ):
        found = lm.Placement(f, **given_here)
        assert (found.site, found.strength, found.positions) == expected
    bare = lm.Placement(dense_map(WIDTH))
    assert (bare.site, bare.strength, bare.positions) == ("final", 1.0, "all")


def test_an_estimator_and_a_map_become_steering_functions(model):
    X = np.random.default_rng(0).normal(size=(60, WIDTH))
    est = rs.MeanMatching(source="a", target="b", gate="always").fit(X, np.repeat(["a", "b"], 30))
    assert lm.Placement(est).function is est.steering_
    m = dense_map(WIDTH)
    assert isinstance(lm.Placement(m).function, rs.SteeringFunction)
    assert torch.equal(steered(model, lm.Placement(m, "layers.0")), steered(model, {"layers.0": m}))


def test_a_placement_cannot_be_changed():
    placement = lm.Placement(function())
    for name in ("function", "site", "strength", "positions"):
        with pytest.raises(FrozenInstanceError):
            setattr(placement, name, getattr(placement, name))


def test_the_key_differs_exactly_where_the_steering_does():
    base = {"function": function(1), "site": "layers.0", "strength": 0.5, "positions": "all"}
    other = {"function": function(2), "site": "final", "strength": 0.25, "positions": "generated"}
    every = [base, *({**base, name: value} for name, value in other.items())]
    for a, b in combinations(every, 2):
        assert lm.Placement(**a).key != lm.Placement(**b).key
    for one in every:
        again = {**one, "function": rs.SteeringFunction(one["function"].maps, origin=rs.Origin(model="another"))}
        assert lm.Placement(**again).key == lm.Placement(**one).key
    assert lm.Placement(**base).key == f"{base['function'].digest()}|layers.0|0.5"


@given(st.floats(-1e6, 1e6), st.floats(-1e3, 1e3))
def test_a_scaled_strength_has_six_digits(strength, factor):
    placement = lm.Placement(function(), "layers.0", strength, "last")
    scaled = placement.scaled(factor)
    assert scaled.strength == float(f"{scaled.strength:.6g}") == float(f"{strength * factor:.6g}")
    assert (scaled.function, scaled.site, scaled.positions) == (placement.function, "layers.0", "last")
    assert placement.strength == strength


@pytest.mark.parametrize("sites", [("layers.0", "layers.0"), ("layers.0", "final"), ("final", "layers.0")])
def test_a_list_acts_like_nested_blocks(model, sites):
    first, then = (lm.Placement(function(i), site, 0.5) for i, site in enumerate(sites))
    together = steered(model, [first, then])
    assert torch.equal(together, nested(model, first, then))
    assert torch.equal(together, steered(model, (first, then)))
    if sites[0] == sites[1]:  # where two act at one place, their order matters
        assert not torch.equal(together, steered(model, [then, first]))


def test_a_pass_counts_once_whatever_acts_at_its_site(model):
    two = [lm.Placement(function(i), "layers.0", 0.5) for i in range(2)]
    with lm.steer(model, two) as block:
        logits(model)
        logits(model)
    assert block.visits == {"layers.0": 2} and block.steered_share == {"layers.0": 1.0}


def test_what_scores_takes_a_list(model, tokenizer):
    first, then = lm.Placement(function(1), "layers.0", 0.5), lm.Placement(function(2), "layers.0", 0.25)
    both = [first, then]
    with lm.steer(model, first), lm.steer(model, then):
        meant = lm.log_likelihoods(model, tokenizer, PROMPTS, AFTER, **QUIET)
        documents = lm.document_perplexity(model, tokenizer, PROMPTS, {"a": None}, max_length=8, **QUIET)
    assert lm.log_likelihoods(model, tokenizer, PROMPTS, AFTER, steering=both, **QUIET) == meant
    found = lm.document_perplexity(model, tokenizer, PROMPTS, {"a": both, "b": first}, max_length=8, **QUIET)
    assert found["a"] == documents["a"] != found["b"]
    values = lm.kl_divergence(model, tokenizer, PROMPTS, both, **QUIET)
    composed = then.function.with_origin(strength=0.25).after(first.function.with_origin(strength=0.5))
    again = lm.kl_divergence(model, tokenizer, PROMPTS, {"layers.0": composed}, **QUIET)
    for one, other in zip(values, again, strict=True):
        np.testing.assert_allclose(one.values, other.values, rtol=1e-3, atol=1e-5)


def test_on_policy_and_price_read_at_the_place_that_is_stated(model, tokenizer, tmp_path):
    f, how = function(), {"sites": ["layers.1"], "samples": 3, "max_new_tokens": 4, **QUIET}

    def score(texts):
        return [text.count("w1") / 4 for text in texts]

    placement = lm.Placement(f, "layers.0", 0.5)
    found, meant = (
        lm.on_policy(model, tokenizer, PROMPTS * 4, score, steering=one, source_at=0.2, target_at=0.1, **how)
        for one in (placement, {"layers.0": f.with_origin(strength=0.5)})
    )
    assert found.generations == meant.generations
    price, expected = (
        lm.price(model, tokenizer, PROMPTS, one, **QUIET) for one in (placement, f.with_origin(site="layers.0"))
    )
    assert price.site == "layers.0" and price.kl(f) == expected.kl(f)


@pytest.mark.filterwarnings("ignore:`lora_bias=True` was passed")
def test_exports_hold_a_placement_or_what_a_list_composes_to(model, tmp_path):
    alone = lm.Placement(shift(1), "layers.1", 0.5)
    both = [alone, lm.Placement(shift(2), "layers.1", 0.25)]
    for placements in (alone, both):
        meant = steered(model, placements)
        assert same(logits(lm.fold(model, placements)), meant)
        adapter = tmp_path / f"adapter {placements is both}"
        assert lm.to_lora(model, placements, None, adapter).exact
        assert same(logits(peft.PeftModel.from_pretrained(tiny_model("llama"), adapter).eval()), meant)
        assert all(target.holds for target in lm.export_targets(model, placements).values())
        (tensor,) = gguf.GGUFReader(lm.to_gguf(model, placements, None, tmp_path / "v.gguf")).tensors
        bias = sum(p.strength * p.function.maps[None].bias for p in ([alone] if placements is alone else both))
        np.testing.assert_allclose(tensor.data, bias, rtol=1e-6)
    assert same(logits(lm.fold(model, alone, scale=2.0)), steered(model, alone.scaled(2)))
    assert not same(logits(lm.fold(model, alone)), steered(model, both))


def test_exports_refuse_what_no_one_map_does(model, tmp_path):
    elsewhere = [lm.Placement(shift(1), "layers.1", 0.5), lm.Placement(shift(2), "final", 0.5)]
    with pytest.raises(FoldError, match=r"these are at \['layers.1', 'final'\]. Take one site after another"):
        lm.fold(model, elsewhere)
    with pytest.warns(OriginWarning, match="weights act at every position"):
        lm.fold(model, lm.Placement(shift(), "final", 0.5, "generated"))


CONTRADICTIONS = {
    "strength=0.5": lambda model, tokenizer, one: lm.steer(model, one, strength=0.5).__enter__(),
    "positions='last'": lambda model, tokenizer, one: lm.steer(model, [one], positions="last").__enter__(),
    "kl_budget=0.1": lambda model, tokenizer, one: written(model, one, kl_budget=0.1),
    "strength=0.25": lambda model, tokenizer, one: lm.Choice(one, strength=0.25),
    "positions='all'": lambda model, tokenizer, one: lm.Choice([one, one], positions="all"),
    "strength=0.75 and positions='last'": lambda model, tokenizer, one: lm.kl_divergence(
        model, tokenizer, PROMPTS, one, strength=0.75, positions="last"
    ),
    "strength=2.0": lambda model, tokenizer, one: lm.log_likelihoods(
        model, tokenizer, PROMPTS, AFTER, steering=one, strength=2.0
    ),
    "site='final'": lambda model, tokenizer, one: lm.steer(model, {"final": one}).__enter__(),
    "site='layers.0'": lambda model, tokenizer, one: lm.fold(model, one, "layers.0"),
    "site='layers.1'": lambda model, tokenizer, one: lm.price(model, tokenizer, PROMPTS, one, site="layers.1"),
    "strength=1.0": lambda model, tokenizer, one: lm.export_targets(model, one, strength=1.0),
}


@pytest.mark.parametrize("choice", CONTRADICTIONS)
def test_what_a_call_states_beside_a_placement_is_refused(model, tokenizer, choice):
    with pytest.raises(ParameterError, match=r"beside a Placement.*Pass placement\.scaled\(factor\)") as error:
        CONTRADICTIONS[choice](model, tokenizer, lm.Placement(shift(), "layers.0", 1.0))
    assert f"got {choice} beside" in str(error.value)


def test_a_scale_multiplies_the_stated_strength(model):
    placement = lm.Placement(function(), "layers.0", 0.25, "last")
    assert torch.equal(steered(model, placement, scale=2.0), steered(model, placement.scaled(2)))
    assert written(model, placement, scale=2.0) == written(model, [placement] * 3, scale=2.0)


def test_the_strength_in_force_warns_as_elsewhere(model):
    """Warnings are errors here."""
    measured = shift(site="layers.1", strength=0.18).with_outcome(outcome())
    for quiet in (lm.Placement(measured), lm.Placement(measured, strength=0.36), lm.Placement(shift(), "final", 1.0)):
        steered(model, quiet)
    for far, how in ((lm.Placement(measured, strength=0.37), {}), (lm.Placement(measured), {"scale": 2.1})):
        with pytest.warns(ExtrapolationWarning, match=r"more than twice 0\.18"):
            steered(model, far, **how)
    with pytest.warns(ExtrapolationWarning, match="outside"):
        steered(model, lm.Placement(shift(), "final", 1.5))


def test_prices_of_placements_of_one_row_add_up(model):
    one = lm.Placement(shift(1, site="layers.1", strength=0.18).with_outcome(outcome()))
    other = lm.Placement(shift(2, site="layers.1", strength=0.18).with_outcome(outcome()))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with lm.steer_rows(model, [[one, other]]):
            model(torch.tensor([[1, 5]]))
    assert [w.category for w in said] == [SteeringWarning, SteeringWarning]
    assert "together cost" in str(said[1].message)


@pytest.mark.parametrize(
    ("given_here", "message"),
    [
        ({"strength": float("nan")}, "strength is nan; it must be one finite number"),
        ({"strength": float("inf")}, "strength is inf; it must be one finite number"),
        ({"strength": True}, "strength is True; it must be one finite number"),
        ({"strength": "1"}, "strength is '1'; it must be one finite number"),
        ({"positions": "some"}, r"positions is 'some'; it must be one of \['all'"),
        ({"site": ""}, "site is ''; it must be the name of a site"),
        ({"site": 3}, "site is 3; it must be the name of a site"),
        ({"function": "final"}, "Placement got a str; it takes a fitted estimator"),
        ({"function": rs.LEACE()}, "Placement got a LEACE; it takes a fitted estimator"),
    ],
)
def test_bad_placements_are_refused_when_they_are_made(given_here, message):
    with pytest.raises(ParameterError, match=message):
        lm.Placement(**{"function": function(), **given_here})


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), "2", True])
def test_a_bad_factor_is_refused(factor):
    with pytest.raises(ParameterError, match=r"factor is .*; it must be one finite number"):
        lm.Placement(function()).scaled(factor)


def test_a_place_that_a_model_does_not_have_is_refused_in_use(model):
    with pytest.raises(SiteError), lm.steer(model, lm.Placement(function(), "layers.9")):
        pass
    with (
        pytest.raises(ShapeError, match="has 3 features"),
        lm.steer(model, lm.Placement(rs.Translation(np.ones(3)), "layers.0")),
    ):
        pass
    labelled = rs.SteeringFunction({"a": dense_map(WIDTH)}, LabelsGate(("a", "b")), ("a", "b"))
    with pytest.raises(ParameterError, match="tokens have no labels"), lm.steer(model, lm.Placement(labelled, "final")):
        pass
    with pytest.raises(ParameterError, match="steer got list"), lm.steer(model, [lm.Placement(function()), function()]):
        pass
    ids, mask = padded()
    behind = [lm.Placement(gated(dense_map(WIDTH, i), split_gate(model, "layers.0", ids, mask))) for i in range(2)]
    with pytest.raises(ParameterError, match="Behind a gate two steerings do not compose"):
        lm.fold(model, behind)
