"""Strengths from a budget of nats: at one site, at several, from a file; and the divergence that results."""

import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import DataError, ParameterError, ShapeError
from repsurgery.lm.read.states import reader
from repsurgery.lm.steer.budget import budgeted_strength
from repsurgery.origin import ChosenStrength
from repsurgery.price import Price
from tests.certificates.test_outcome import outcome
from tests.lm.test_extract import Interrupting
from tests.lm.tiny_models import WIDTH, texts, tiny_model, tiny_tokenizer

SOME = texts(12, seed=6)
MID = "layers.0"
SAMPLES = 200
TOKENIZER = tiny_tokenizer()
MODEL = tiny_model("llama", dtype=torch.float64)
FISHERS = lm.fisher(MODEL, TOKENIZER, SOME, sites=["final", MID], samples=SAMPLES, progress=False)
MOMENTS = lm.class_moments(MODEL, TOKENIZER, SOME, ["a", "b"] * 6, sites=["final", MID], pooling="all", progress=False)
SHIFT = rs.Translation(np.random.default_rng(0).normal(size=WIDTH))
STRETCH = rs.Dense(np.eye(WIDTH) + 0.2 * np.random.default_rng(1).normal(size=(WIDTH, WIDTH)), np.zeros(WIDTH))
SMALL = 1e-3


def measured(sites, **how):
    found = lm.kl_divergence(MODEL, TOKENIZER, SOME, sites, direction="base-steered", progress=False, **how)
    return np.mean([value for one in found for value in one.values])


def logits(sites, text=SOME[0], **how):
    ids = torch.tensor([TOKENIZER(text)["input_ids"]])
    with torch.no_grad(), lm.steer(MODEL, sites, **how):
        return MODEL(input_ids=ids).logits


STEP = 1e-5
"""A strength at which float64 logits are linear in the strength to about five digits."""
EXPANSION = np.sqrt(2 * SMALL)
"""The third-order term of a divergence, relative to the second, is √(2 KL) / 3 · skewness of dz, the derivative of the
logits in the strength; below "final" the curvature of the logits adds to it. This allows a skewness of 3."""


def second_order(site, steering):
    """Return the exact second-order price at strength 1: the mean over positions of ½ Var(dz), with dz drawn by p."""
    values = []
    for text in SOME:
        z, moved = (logits({site: steering}, text, strength=t)[0] for t in (0.0, STEP))
        p, dz = z.softmax(dim=-1), (moved - z) / STEP
        values += (0.5 * ((p * dz**2).sum(dim=-1) - (p * dz).sum(dim=-1) ** 2)).tolist()
    return np.mean(values)


@pytest.mark.parametrize("site", ["final", MID])
def test_a_small_budget_is_what_a_shift_costs(site):
    t = FISHERS[site].strength(SHIFT, SMALL)
    # below "final" a price is the mean of squares, one per text and draw, each of relative variance 2
    lengths = np.array([len(TOKENIZER(text)["input_ids"]) for text in SOME])
    drawn = np.sqrt(2 / SAMPLES * np.sum((lengths / lengths.sum()) ** 2)) if site == MID else 0.0
    assert measured({site: SHIFT}, strength=t) == pytest.approx(SMALL, rel=EXPANSION + 4 * drawn)


@pytest.mark.parametrize("site", ["final", MID])
def test_a_map_costs_its_second_order_price_along_the_texts(site):
    t = FISHERS[site].strength(STRETCH, SMALL, MOMENTS[site])
    expected = t**2 * second_order(site, STRETCH)
    assert measured({site: STRETCH}, strength=t) == pytest.approx(expected, rel=EXPANSION)


def test_the_prediction_for_a_map_lacks_the_covariance_of_matrix_and_displacement():
    W = MODEL.get_output_embeddings().weight.detach()
    covariances = []
    for text, rows in zip(SOME, _token_states("final"), strict=True):
        d = torch.from_numpy(STRETCH(np.array(rows)) - rows).double()
        p = logits({"final": SHIFT}, text, strength=0.0)[0].softmax(dim=-1)
        u = d @ W.T  # the change of the logits
        own = (p * u**2).sum(dim=-1) - (p * u).sum(dim=-1) ** 2
        mean = torch.einsum("ij,jk,ik->i", d, torch.from_numpy(np.array(FISHERS["final"].matrix)), d)
        covariances += (0.5 * (own - mean)).tolist()
    lacking = np.mean(covariances)
    predicted = FISHERS["final"].kl(STRETCH, MOMENTS["final"])
    exact = second_order("final", STRETCH)
    assert predicted + lacking == pytest.approx(exact, rel=1e-4)  # of float32 states and of the finite step
    assert abs(lacking) > 1e-3 * exact


def test_the_two_directions_of_the_divergence_agree_for_small_steps_only():
    def ratio(t):
        found = lm.kl_divergence(MODEL, TOKENIZER, SOME, {"final": SHIFT}, strength=t, progress=False)
        return np.mean([value for one in found for value in one.values]) / measured({"final": SHIFT}, strength=t)

    assert abs(ratio(0.01) - 1) < 0.01 < abs(ratio(1.0) - 1)
    with pytest.raises(ParameterError, match="direction is"):
        lm.kl_divergence(MODEL, TOKENIZER, SOME, {"final": SHIFT}, direction="both", progress=False)


def test_a_budget_sets_the_strength_of_the_block():
    t = FISHERS["final"].strength(SHIFT, SMALL)
    expected = logits({"final": SHIFT}, strength=t)
    assert torch.equal(logits({"final": SHIFT}, kl_budget=SMALL, fisher=FISHERS["final"]), expected)
    assert torch.equal(logits({"final": SHIFT}, kl_budget=SMALL, fisher=FISHERS, moments=MOMENTS), expected)
    options = {"n": 2, "max_new_tokens": 4, "progress": False}
    drawn = lm.generate(MODEL, TOKENIZER, SOME[:2], steering={"final": SHIFT}, strength=t, **options)
    budget = {"kl_budget": SMALL, "fisher": FISHERS["final"]}
    assert lm.generate(MODEL, TOKENIZER, SOME[:2], steering={"final": SHIFT}, **budget, **options) == drawn


def test_several_sites_share_one_budget():
    sites = {"final": SHIFT, MID: rs.Diagonal(np.full(WIDTH, 0.9), np.ones(WIDTH))}
    whole = sum(FISHERS[site].kl(m, MOMENTS[site]) for site, m in sites.items())
    t = np.sqrt(SMALL / whole)
    priced = sum(FISHERS[site].kl(m, MOMENTS[site], strength=t) for site, m in sites.items())
    assert priced == pytest.approx(SMALL)
    assert torch.equal(logits(sites, kl_budget=SMALL, fisher=FISHERS, moments=MOMENTS), logits(sites, strength=t))


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ({"fisher": FISHERS["final"]}, "fisher as a mapping of site to Fisher"),
        ({"moments": MOMENTS["final"]}, "moments as a mapping of site to Moments or ClassMoments"),
        ({"moments": MOMENTS["final"].total}, "moments as a mapping of site to Moments or ClassMoments"),
        ({"share": 0.5}, "share as a mapping of site to share"),
    ],
)
def test_one_value_does_not_serve_several_sites(given, needed):
    with pytest.raises(ParameterError, match=needed):
        logits({"final": SHIFT, MID: SHIFT}, kl_budget=SMALL, **{"fisher": FISHERS, "moments": MOMENTS, **given})


def test_a_misspelt_site_is_refused():
    function = rs.SteeringFunction({None: SHIFT}).with_price(Price(FISHERS["final"]))
    for argument, value in (("fisher", FISHERS[MID]), ("moments", MOMENTS[MID]), ("share", 0.5)):
        with pytest.raises(ParameterError, match=rf"{argument} is a mapping with \['finl'\].*as in the steering"):
            logits({"final": function}, kl_budget=SMALL, **{argument: {"finl": value}})
        with pytest.raises(ParameterError, match="as in the steering"):
            logits({"final": function, MID: SHIFT}, kl_budget=SMALL, **{argument: {"finl": value, MID: value}})
    # a site may be left to what its steering stores
    expected = logits({"final": function, MID: SHIFT}, kl_budget=SMALL, fisher=FISHERS)
    found = logits({"final": function, MID: SHIFT}, kl_budget=SMALL, fisher={MID: FISHERS[MID]})
    assert torch.equal(found, expected)


def test_shares_by_label_are_given_by_site():
    estimator = gated(MID)
    price = lm.price(MODEL, TOKENIZER, SOME, estimator, samples=2, progress=False)
    budget = {"kl_budget": SMALL, "fisher": price.fisher, "moments": {MID: price.moments}}
    expected = logits({MID: estimator}, strength=price.strength(estimator, SMALL))
    assert torch.equal(logits({MID: estimator}, share={MID: price.share}, **budget), expected)
    with pytest.raises(ParameterError, match="Values by label belong inside"):
        logits({MID: estimator}, share=price.share, **budget)


def test_a_budget_without_a_matrix_says_how_to_get_one():
    with pytest.raises(ParameterError, match="--store-fisher"):
        logits({"final": SHIFT}, kl_budget=SMALL)
    with pytest.raises(ParameterError, match="pass one of them"):
        logits({"final": SHIFT}, kl_budget=SMALL, strength=0.5, fisher=FISHERS)
    with pytest.raises(ParameterError, match="without kl_budget"):
        logits({"final": SHIFT}, fisher=FISHERS)
    with pytest.raises(ParameterError, match="nats"):
        logits({"final": SHIFT}, kl_budget=-1, fisher=FISHERS)
    with pytest.raises(ParameterError, match=r"kl\(map, moments\)"):
        logits({"final": rs.Dense(2 * np.eye(WIDTH), np.zeros(WIDTH))}, kl_budget=SMALL, fisher=FISHERS)


def gated(site):
    rows = lm.extract(MODEL, TOKENIZER, SOME, site=site, progress=False)
    return rs.MiMiC(source="a", target="b", shrinkage="oas").fit(rows, ["a", "b"] * 6).with_origin(site=site)


def test_the_price_of_a_gate_is_that_of_its_rows():
    estimator = gated(MID)
    price = lm.price(MODEL, TOKENIZER, SOME, estimator, samples=200, progress=False)
    assert price.fisher.matrix == pytest.approx(FISHERS[MID].matrix)
    rows = np.concatenate([np.array(x) for x in _token_states(MID)])
    displacement = estimator.transform(rows) - rows
    moved = np.abs(displacement).any(axis=1)
    assert 0 < moved.sum() < len(rows)
    assert price.share == {"a": pytest.approx(moved.mean())}
    expected = 0.5 * np.einsum("ij,jk,ik->i", displacement, price.fisher.matrix, displacement).mean()
    assert price.kl(estimator) == pytest.approx(expected, rel=1e-5)  # states are read in float32


def _token_states(site, length=None):
    with torch.no_grad(), reader(MODEL, TOKENIZER, [site], "all") as read:
        return [read([TOKENIZER(text)["input_ids"][:length]])[site] for text in SOME]


def test_matrix_and_moments_are_of_the_same_positions():
    assert any(len(TOKENIZER(text)["input_ids"]) > 3 for text in SOME)
    price = lm.price(MODEL, TOKENIZER, SOME, SHIFT, site=MID, samples=2, max_length=3, progress=False)
    rows = np.concatenate(_token_states(MID, 3))
    assert price.fisher.count == price.moments.count == len(rows)
    np.testing.assert_allclose(price.moments.mean, rows.mean(axis=0), rtol=0, atol=1e-5)  # of float32 states


def test_a_soft_gate_is_refused_before_the_model_runs():
    rows = lm.extract(MODEL, TOKENIZER, SOME, site=MID, progress=False)
    labels = ["a", "b"] * 6
    gate = rs.calibrate_soft_gate(rs.build_gate("nearest-mean", rows, labels), rows, source="a")
    function = rs.SteeringFunction({"a": SHIFT}, gate, ("a", "b"))
    passes = Interrupting(MODEL, stop=None)
    with pytest.raises(ParameterError, match=r"strength = sqrt\(budget / fisher\.kl_on\(f, X\)\)"):
        lm.price(MODEL, TOKENIZER, SOME, function, site=MID, progress=False)
    passes.remove()
    assert passes.passes == 0


def test_a_price_stays_with_an_estimator(tmp_path):
    estimator = gated("final")
    price = lm.price(MODEL, TOKENIZER, SOME, estimator, progress=False)
    priced = estimator.with_price(price)
    assert estimator.steering_.price is None
    assert priced.with_origin(licence="MIT").steering_.price is price
    rs.save(priced, tmp_path / "e")
    again = rs.load(tmp_path / "e")
    assert again.steering_.price.kl(again) == pytest.approx(price.kl(estimator), rel=1e-5)
    refitted = priced.fit(lm.extract(MODEL, TOKENIZER, SOME, progress=False), ["a", "b"] * 6)
    assert refitted.steering_.price is None


def test_a_stored_price_travels_with_the_steering(tmp_path):
    estimator = gated("final")
    price = lm.price(MODEL, TOKENIZER, SOME, estimator, progress=False)
    function = estimator.steering_.with_price(price)
    assert function.digest() == estimator.steering_.digest()
    rs.save(function, tmp_path / "f")
    again = rs.load(tmp_path / "f")
    assert again.price.kl(again) == pytest.approx(price.kl(function), rel=1e-5)
    assert again.price.strength(again, SMALL) == pytest.approx(price.strength(function, SMALL), rel=1e-5)
    t = price.strength(function, SMALL)
    assert torch.allclose(logits(again, kl_budget=SMALL), logits(again, strength=t), atol=1e-6)
    always = lm.price(MODEL, TOKENIZER, SOME, SHIFT, progress=False)
    rs.save(rs.SteeringFunction({None: SHIFT}).with_price(always), tmp_path / "g")
    assert rs.load(tmp_path / "g").price.share == 1.0
    with pytest.raises(ShapeError, match="same site"):
        rs.SteeringFunction({None: rs.Translation([1.0])}).with_price(price)


def tuned(kl, strength, site="layers.1", positions="all"):
    """Return a steering whose price was measured at its strength, as a search writes it."""
    shift = rs.SteeringFunction({None: rs.Translation(np.linspace(-0.2, 0.3, WIDTH))})
    return shift.with_origin(site=site, strength=strength, positions=positions).with_outcome(outcome(kl=kl))


@pytest.mark.parametrize("strength", [0.18, 1.0, 3.4])
@pytest.mark.parametrize("positions", ["all", "generated"])
def test_a_measured_price_predicts_itself_and_grows_with_the_square(strength, positions):
    f = tuned(0.12, strength, positions=positions)
    for factor in (0.5, 1.0, 2.0):
        found = budgeted_strength({"layers.1": f}, strength=None, kl_budget=0.12 * factor**2)
        assert found == pytest.approx(strength * factor)
    both = {"layers.1": f, "layers.0": tuned(0.06, strength, site="layers.0", positions=positions)}
    assert budgeted_strength(both, strength=None, kl_budget=0.18) == pytest.approx(strength)


def test_a_budget_keeps_the_sign_of_the_strength():
    """Of a measured price and of a stored one: what was tuned is a shift the other way."""
    f = tuned(0.12, -0.5, site=MID)
    stored = f.with_outcome(None).with_price(Price(FISHERS[MID], site=MID))
    for one in (f, stored):
        there = budgeted_strength({MID: one}, strength=None, kl_budget=0.03)
        assert there < 0 and isinstance(there, ChosenStrength)
    back = stored.with_origin(strength=0.5).with_price(stored.price)
    assert budgeted_strength({MID: back}, strength=None, kl_budget=0.03) == -there
    assert budgeted_strength({MID: f}, strength=None, kl_budget=0.12) == pytest.approx(-0.5)
    torch.testing.assert_close(logits(f, kl_budget=0.03), logits(f, scale=0.5))
    mixed = {MID: f, "layers.1": tuned(0.06, 0.5)}
    with pytest.raises(ParameterError, match="have different signs"):
        budgeted_strength(mixed, strength=None, kl_budget=0.1)


def test_a_measured_price_serves_where_it_was_measured():
    """Counter-check: at another site, at other positions, or beside a matrix, it predicts nothing."""
    f = tuned(0.12, 0.5)
    for sites, positions in (({"layers.0": f}, None), ({"layers.1": f}, "generated")):
        with pytest.raises(ParameterError, match="kl_budget needs the Fisher matrix"):
            budgeted_strength(sites, strength=None, kl_budget=0.1, positions=positions)
    other = {"fisher": rs.Fisher(9, np.eye(WIDTH)), "moments": None}
    at = budgeted_strength({"layers.1": f}, strength=None, kl_budget=0.1, **other)
    assert at == pytest.approx(np.sqrt(0.1 / (0.5 * np.square(np.linspace(-0.2, 0.3, WIDTH)).sum())))


def test_a_stored_price_serves_its_own_site():
    function = rs.SteeringFunction({None: SHIFT})
    priced = function.with_price(lm.price(MODEL, TOKENIZER, SOME, function, site="final", progress=False))
    with lm.steer(MODEL, {"final": priced}, kl_budget=0.01):
        MODEL(**TOKENIZER("w1 w2", return_tensors="pt"))
    elsewhere = lm.steer(MODEL, {"layers.0": priced}, kl_budget=0.01)
    with pytest.raises(ParameterError, match=r"measured at 'final', and it would act at 'layers\.0'"), elsewhere:
        pass


@pytest.mark.parametrize("positions", ["last", "prompt", "assistant"])
def test_a_budget_needs_every_position(positions):
    partly = lm.steer(MODEL, {"final": SHIFT}, kl_budget=0.01, fisher=FISHERS["final"], positions=positions)
    with pytest.raises(ParameterError, match="every position that predicts a token"), partly:
        pass


WRITTEN = lm.generate(MODEL, TOKENIZER, SOME[:6], n=2, max_new_tokens=6, progress=False)


def along(positions, sites, **how):
    found = lm.kl_divergence(
        MODEL, TOKENIZER, WRITTEN, sites, positions=positions, direction="base-steered", progress=False, **how
    )
    return np.mean([value for one in found for value in one.values])


@pytest.mark.parametrize("steering", [SHIFT, STRETCH], ids=["shift", "dense"])
def test_a_budget_is_priced_at_the_positions_that_are_steered(tmp_path, steering):
    strengths = {}
    for positions in ("all", "generated"):
        own = rs.SteeringFunction({None: steering}).with_origin(site=MID, positions=positions)
        price = lm.price(MODEL, TOKENIZER, WRITTEN, own, samples=SAMPLES, progress=False)
        rs.save(own.with_price(price), tmp_path / "mine")
        own = rs.load(tmp_path / "mine")
        assert own.price.fisher.positions == positions
        t = strengths[positions] = own.price.strength(own, SMALL)
        # one square per text and draw, each of relative variance 2
        counts = np.array([len(g.tokens) + g.finished for g in WRITTEN])
        drawn = np.sqrt(2 / SAMPLES * np.sum((counts / counts.sum()) ** 2))
        # a shift has the exact second-order price; for another map the covariance with the matrix is missing
        expected = along(positions, {MID: own}, strength=1e-3) * 1e6 * t**2
        assert pytest.approx(expected, rel=4 * drawn + (0.3 if steering is STRETCH else 0.02)) == SMALL
        with lm.steer(MODEL, own, kl_budget=SMALL):
            budgeted = MODEL(torch.tensor([[1, 5, 6]])).logits
        with lm.steer(MODEL, own, strength=t):
            assert torch.allclose(budgeted, MODEL(torch.tensor([[1, 5, 6]])).logits, atol=1e-9)
        other = {"all": "generated", "generated": "all"}[positions]
        refused = lm.steer(MODEL, own, kl_budget=SMALL, positions=other)
        with pytest.raises(ParameterError, match=rf"price of positions='{other}'.*is that of '{positions}'"), refused:
            pass
        for given in ({}, {"positions": positions}):
            how = {"steering": own, "kl_budget": SMALL, "n": 1, "max_new_tokens": 2, "progress": False, **given}
            lm.generate(MODEL, TOKENIZER, SOME[:1], **how)
    assert strengths["generated"] > 1.05 * strengths["all"]


def test_a_matrix_at_final_serves_generated_tokens_too():
    with lm.steer(MODEL, {"final": SHIFT}, kl_budget=SMALL, fisher=FISHERS["final"], positions="generated"):
        MODEL(torch.tensor([[1, 5, 6]]))
    below = lm.steer(MODEL, {MID: SHIFT}, kl_budget=SMALL, fisher=FISHERS[MID], positions="generated")
    with pytest.raises(ParameterError, match=r"lm\.fisher\(.*positions='generated'\) along what lm\.generate"), below:
        pass
    with pytest.raises(ParameterError, match="needs generations"):
        lm.price(MODEL, TOKENIZER, SOME, SHIFT, site=MID, positions="generated", progress=False)


def test_matrices_of_other_positions_have_no_sum():
    how = {"sites": [MID], "samples": 1, "progress": False}
    every, generated = (lm.fisher(MODEL, TOKENIZER, WRITTEN, positions=p, **how)[MID] for p in ("all", "generated"))
    assert (generated + generated).positions == "generated"
    with pytest.raises(DataError, match="Measure both alike"):
        every + generated
