"""`scale` multiplies the strength in force in everything that applies a steering, and far strengths warn the caller."""

import linecache
import math
import pickle
import warnings
from dataclasses import replace
from fractions import Fraction

import gguf
import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import ExtrapolationWarning, ParameterError, SteeringWarning
from repsurgery.lm.steer.rows import prepare_row
from repsurgery.price import Price
from repsurgery.workflows.steerings import open_steering
from tests.certificates.test_outcome import outcome
from tests.lm.folding import dense_map, hooked, logits, same, translation
from tests.lm.tiny_models import WIDTH, tiny_model, tiny_tokenizer

SITE = "layers.0.attn"
PROMPTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8"]
HOW = {"n": 2, "max_new_tokens": 6, "progress": False}
BAD = [math.nan, math.inf, -math.inf, True, False, "2", None, [1], 1 + 0j, np.array([1.0, 2.0])]
quietly = pytest.mark.filterwarnings("ignore::repsurgery.errors.ExtrapolationWarning")


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


def steering(**origin):
    return rs.SteeringFunction({None: dense_map(WIDTH, seed=1)}, origin=rs.Origin(site=SITE, **origin))


def shift(**origin):
    return rs.SteeringFunction({None: translation(WIDTH)}, origin=rs.Origin(site="layers.1", **origin))


def tuned(strength=0.18):
    return shift(strength=strength).with_outcome(outcome())


def written(model, **how):
    return [g.tokens for g in lm.generate(model, tiny_tokenizer(), PROMPTS, **how, **HOW)]


def steered(model, f, **how):
    with lm.steer(model, f, **how):
        return logits(model)


@quietly
@pytest.mark.parametrize("scale", [0, -1, 0.5, 2, np.float32(3), Fraction(1, 4)])
@pytest.mark.parametrize(("own", "given"), [(None, None), (0.4, None), (0.4, 0.7), (None, -0.5)])
def test_a_scale_multiplies_the_strength_in_force(model, own, given, scale, tmp_path):
    f = steering(strength=own)
    in_force = next(s for s in (given, own, 1.0) if s is not None)
    expected = hooked(model, SITE, f.maps[None], strength=in_force * float(scale))
    with lm.steer(model, f, strength=given, scale=scale):
        assert same(logits(model), expected)
    if own is None:  # nor does a bare map have an origin
        assert same(hooked(model, SITE, f.maps[None], strength=given, scale=scale), expected)
    assert same(logits(lm.fold(model, f, strength=given, scale=scale)), expected)
    with lm.steer_rows(model, [lm.Choice(f, given, scale=scale)] * 2):
        assert same(logits(model), expected)
    # the other uses of the same words
    absolute = written(model, steering=steering(), strength=in_force * float(scale))
    assert written(model, steering=f, strength=given, scale=scale) == absolute
    assert written(model, steering=[f] * len(PROMPTS), strength=given, scale=scale) == absolute
    halves = [lm.Choice(f, given, scale=float(scale) / 2)] * len(PROMPTS)
    assert written(model, steering=halves, scale=2) == absolute
    lm.to_gguf(model, shift(strength=own), None, tmp_path / "v.gguf", strength=given, scale=scale)
    (tensor,) = gguf.GGUFReader(tmp_path / "v.gguf").tensors
    np.testing.assert_allclose(tensor.data, in_force * float(scale) * shift().maps[None].shift, rtol=1e-6)


def test_a_scale_of_zero_changes_nothing_and_of_one_is_the_default(model):
    base = logits(model)
    f = steering(strength=-0.0)
    with lm.steer(model, f, scale=0):
        assert torch.equal(logits(model), base)
    with lm.steer(model, steering(strength=0.4), scale=1):
        one = logits(model)
    with lm.steer(model, steering(strength=0.4)):
        assert torch.equal(logits(model), one)
    assert math.copysign(1, rs.Origin(strength=-1.0).effective_strength(scale=0)) == 1


CALLS = {
    "steer": steered,
    "generate": lambda model, f, **how: written(model, steering=f, **how),
    "generate rows": lambda model, f, **how: written(model, steering=[f] * len(PROMPTS), **how),
    "choice": lambda model, f, scale, **how: lm.Choice(f, scale=scale, **how),
    "fold": lambda model, f, **how: lm.fold(model, f, **how),
    "to_lora": lambda model, f, **how: lm.to_lora(model, f, None, "never", rank=1, **how),
    "to_gguf": lambda model, f, **how: lm.to_gguf(model, f.with_origin(site="layers.1"), None, "never", **how),
    "export_targets": lambda model, f, **how: lm.export_targets(model, f, **how),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("scale", BAD, ids=repr)
def test_a_scale_is_one_finite_number(model, call, scale, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match="scale is"):
        CALLS[call](model, steering(), scale=scale)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", [name for name in CALLS if name != "choice"])
def test_the_limit_of_strengths_bounds_the_product(model, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match="times scale 1e\\+200 is not a finite number"):
        CALLS[call](model, steering(strength=1e200), scale=1e200)


def test_a_budget_and_a_scale_contradict_each_other(model):
    f = shift().with_price(Price(rs.Fisher(1, np.eye(WIDTH)), site="layers.1"))
    for call in (CALLS["steer"], CALLS["generate"]):
        with pytest.raises(ParameterError, match=r"scale=2 and kl_budget=0\.1"):
            call(model, f, kl_budget=0.1, scale=2)
        with pytest.raises(ParameterError, match="scale is nan"):
            call(model, f, kl_budget=0.1, scale=math.nan)
    assert written(model, steering=f, kl_budget=0.1, scale=1) == written(model, steering=f, kl_budget=0.1)


def caught(act):
    """Return the warnings of a call that point at a line of this file that calls the package, as (kind, text)."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        act()
    for one in found:
        line = linecache.getline(one.filename, one.lineno)
        assert one.filename == __file__ and any(call in line for call in (" lm.", " rs.", "prepare_row(", "f.inter")), (
            line
        )
    return [(one.category, str(one.message)) for one in found]


@pytest.mark.parametrize(
    "how",
    [{"scale": 2.01}, {"scale": -2.01}, {"strength": 0.361}, {"strength": 0.2, "scale": 1.81}, {"scale": 1e9}],
    ids=repr,
)
def test_above_twice_the_measured_strength_there_is_a_warning(model, how, tmp_path):
    f = tuned()
    rs.save(f, tmp_path / "f")
    uses = {
        "steer": lambda: steered(model, rs.load(tmp_path / "f"), **how),
        "generate": lambda: written(model, steering=f, **how),
        "choice": lambda: prepare_row(model, lm.Choice(f, **how)),
        "to_gguf": lambda: lm.to_gguf(model, f, None, tmp_path / "v.gguf", **how),
        "export_targets": lambda: lm.export_targets(model, f, **how),
        "kl_divergence": lambda: lm.kl_divergence(
            model, tiny_tokenizer(), PROMPTS, f, strength=f.origin.effective_strength(**how), progress=False
        ),
    }
    for name, use in uses.items():
        said = [text for kind, text in caught(use) if kind is ExtrapolationWarning]
        assert len(said) == 1 and "more than twice 0.18" in said[0], (name, said)


@pytest.mark.parametrize("how", [{}, {"scale": 2}, {"scale": -2}, {"scale": 0}, {"strength": 0.36}, {"strength": 0.0}])
@pytest.mark.parametrize("strength", [0.18, 3.35, -0.5])
def test_up_to_twice_the_measured_strength_there_is_none(model, strength, how):
    """Warnings are errors here; a strength that was measured beyond the map is one to scale."""
    f = tuned(strength)
    with lm.steer(model, f, **how):
        logits(model)
    assert prepare_row(model, lm.Choice(f, **how)).far == ()


OWN = 1.951
"""A strength that a search chose beyond the fitted map, such as that of the zoo's ``courteous``."""
SAID = {1.2: 0, 1.9: 0, 1.951: 0, 3.9: 0, 3.91: 1, -0.5: 0, -3.91: 1, 0.0: 0}


@pytest.mark.parametrize("positions", [None, "all", "generated"])
@pytest.mark.parametrize("stored", ["outcome", "price", "both"])
@pytest.mark.parametrize("strength", SAID)
def test_the_same_strength_is_said_alike_however_it_is_written(model, strength, stored, positions, tmp_path):
    f = tuned(OWN) if stored != "price" else shift(strength=OWN)
    f = f if stored == "outcome" else f.with_price(Price(rs.Fisher(1, 1e-3 * np.eye(WIDTH)), site="layers.1"))
    rs.save(f, tmp_path / "f.safetensors")
    ways = [{"strength": strength}, {"scale": strength / OWN}, {"strength": 0.25, "scale": 4 * strength}]
    uses = {
        "steer": lambda **how: steered(model, f, positions=positions, **how),
        "generate": lambda **how: written(model, steering=f, positions=positions, **how),
        "choice": lambda **how: prepare_row(model, lm.Choice(f, positions=positions, **how)),
        "fold": lambda **how: lm.fold(model, shift_in_weights(f), **how),
        "file": lambda **how: open_steering(tmp_path / "f.safetensors", positions=positions, **how).force.warn(),
    }
    for how in ways:
        for name, use in uses.items():
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                use(**how)
            said = [str(one.message) for one in found if one.category is ExtrapolationWarning]
            assert len(said) == SAID[strength], (name, how, said)
            assert all(("more than twice" if stored != "price" else "outside [0, 1]") in text for text in said)


def shift_in_weights(f):
    """Return the same steering at a site of which a fold holds it in the weights, as measured there."""
    moved = f.with_origin(site=SITE).with_outcome(f.outcome)
    return moved if f.price is None else moved.with_price(replace(f.price, site=SITE))


def test_a_budget_far_above_the_measured_strength_warns_too(model):
    fisher = rs.Fisher(1, 1e-6 * np.eye(WIDTH))
    ((_, said),) = caught(lambda: written(model, steering=tuned(), kl_budget=0.1, fisher=fisher))
    assert "more than twice" in said


def test_a_strength_that_a_price_chose_needs_no_warning(model, tmp_path):
    """Warnings are errors here."""
    fisher = rs.Fisher(1, 1e-3 * np.eye(WIDTH))
    f = shift()
    price = Price(fisher, site="layers.1")
    strength = fisher.strength(f, 0.1)
    assert strength > 1 and type(pickle.loads(pickle.dumps(strength))) is type(strength)
    for chosen in (strength, price.strength(f, 0.1)):
        written(model, steering=f, strength=chosen)
        written(model, steering=[f] * len(PROMPTS), strength=chosen)
        written(model, steering=f.with_origin(strength=chosen))
        lm.to_gguf(model, f, None, tmp_path / "v.gguf", strength=chosen)
        f.interpolate(chosen), rs.interpolate(f.maps[None], chosen)
    written(model, steering=f, kl_budget=0.1, fisher=fisher)
    rs.save(f.with_origin(strength=strength).with_price(price), tmp_path / "f")
    kept = rs.load(tmp_path / "f")
    written(model, steering=kept)
    written(model, steering=kept, scale=0.5)


def test_a_warning_points_at_the_line_of_the_caller(model, tmp_path):
    """Where neither a price nor a measurement chose the strength, however deep the warning arises."""
    f = shift()
    uses = [
        lambda: steered(model, f, strength=3.35),
        lambda: steered(model, f, scale=3.35),
        lambda: steered(model, f.with_origin(strength=3.35)),
        lambda: written(model, steering=f, strength=3.35),
        lambda: written(model, steering=[f] * len(PROMPTS), strength=3.35)[0],
        lambda: lm.to_gguf(model, f, None, tmp_path / "v.gguf", strength=3.35),
        lambda: lm.kl_divergence(model, tiny_tokenizer(), PROMPTS, f, strength=3.35, progress=False),
        lambda: rs.interpolate(f, 3.35),
        lambda: rs.interpolate(f.maps[None], 3.35),
        lambda: f.interpolate(3.35),
    ]
    for use in uses:
        said = caught(use)
        assert {kind for kind, _ in said} == {ExtrapolationWarning}
        assert all(text.startswith("strength 3.35 lies outside [0, 1]") for _, text in said)


def priced(seed, kl, **origin):
    """Return a shift that costs ``kl`` at strength 1, in a direction of its own."""
    f = rs.SteeringFunction({None: rs.Translation(np.eye(WIDTH)[seed])}, origin=rs.Origin(site="layers.0", **origin))
    return f.with_price(Price(rs.Fisher(1, 2 * kl * np.eye(WIDTH)), site="layers.0"))


def test_prices_that_add_up_warn_at_the_line_of_the_caller(model):
    a, b, measured = priced(0, 0.1), priced(1, 0.1), tuned().with_outcome(outcome(kl=0.1))
    for row in ([a, b], [a, measured], [measured, b], [lm.Choice(a, scale=0.5), lm.Choice(b, scale=0.5)]):
        ((kind, said),) = caught(lambda row=row: written(model, steering=[row, None, None]))
        assert kind is SteeringWarning and "prices add up" in said
    assert prepare_row_quietly(model, [a, b]).prices == pytest.approx((0.1, 0.1))
    # the price of a row is that of its strengths: proportional to their squares
    scaled = prepare_row_quietly(model, [lm.Choice(measured, scale=2), lm.Choice(b, 0.5)])
    assert scaled.prices == ()  # .4 and .025: hardly more than the dearer one
    assert prepare_row_quietly(model, [lm.Choice(measured, scale=2), lm.Choice(b, scale=2)]).prices == pytest.approx(
        (0.4, 0.4)
    )
    # one steering, or one whose price is not known, has nothing to add up
    for row in ([a], [a, shift()], [{"layers.0": a, "layers.1": shift()}]):
        assert prepare_row(model, row).prices == ()


def prepare_row_quietly(model, row):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return prepare_row(model, row)
