import math
from dataclasses import replace

import numpy as np
import pytest

from repsurgery import lm
from repsurgery.certificates import EffectCertificate
from repsurgery.errors import DataError
from repsurgery.price import Fisher
from repsurgery.tuning.bench import priced
from repsurgery.tuning.candidates import Candidate, canonical
from repsurgery.tuning.forms import fitted_function, form_of
from repsurgery.tuning.methods.gates import STEERED
from repsurgery.tuning.race import Race
from tests.tuning.tiny import SITES, labelled

MOVES = [
    Candidate("final", "mean", "on-policy"),
    Candidate("layers.0", "mean", "texts"),
    Candidate("final", "mimic", "on-policy", "pooled 0.5"),
    Candidate("final", "leace", "texts"),
    Candidate("final", "natural", "on-policy"),
    Candidate("final", "natural-mean", "steps"),
    Candidate("layers.0", "blend", "texts"),
    Candidate("final", "natural", "on-policy", scope="gate"),
    Candidate("final", "mean", "on-policy", scope="soft"),
]
SIX_DIGITS = 1.01e-5
"""Strengths are rounded to six digits, to 5e-6 at most, and the price is their square."""


@pytest.mark.parametrize("candidate", MOVES, ids=lambda c: c.name)
def test_the_predicted_price_is_that_of_the_fisher_matrix(evidence, candidate):
    form, X = form_of(candidate, evidence), evidence.steps(candidate.site)
    fisher = evidence.judge(candidate.site)
    moved = np.asarray(form.function(X), dtype=np.float64) - X
    assert form.unit_kl == pytest.approx(0.5 * np.mean(np.sum(moved @ fisher.matrix * moved, axis=1)))
    assert form.unit_kl == fisher.kl_on(form.function, X)


@pytest.mark.parametrize("method", ["natural", "natural-mean", "blend"])
def test_a_matrix_of_few_draws_does_not_flatter_the_shift_that_it_chose(evidence, method):
    # matrices of fewer draws than there are features, whose expectation is the identity
    ratios, flattered = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        halves = []
        for half in evidence.halves:
            d = half.steps["final"].shape[1]
            G, H = rng.normal(size=(2, d // 4, d))
            drawn_ = {
                "fishers": {"final": Fisher(1, G.T @ G / len(G))},
                "judges": {"final": Fisher(1, H.T @ H / len(H))},
            }
            halves.append(replace(half, **drawn_))
        drawn = with_gradients(replace(evidence, halves=tuple(halves)), lambda n, d, rng=rng: rng.normal(size=(n, d)))
        form = form_of(Candidate("final", method, "texts" if method == "blend" else "on-policy", damping=0.1), drawn)
        (m,) = form.function.maps.values()
        true = 0.5 * float(m.bias @ m.bias)
        ratios.append(form.unit_kl / true)
        flattered.append(drawn.fisher("final").kl_on(form.function, evidence.steps("final")) / true)
    # a price by other draws is that of 8 squares of normal numbers, divided by their expectation
    error = np.sqrt(2 / 8 / len(ratios))
    assert np.mean(flattered) < 0.6 < 1 - 4 * error < np.mean(ratios) < 1 + 4 * error


@pytest.mark.parametrize("scope", ["all", "gate", "soft"])
@pytest.mark.parametrize("method", ["mean", "mimic", "leace", "natural", "natural-mean", "blend"])
@pytest.mark.parametrize("site", SITES)
@pytest.mark.filterwarnings("ignore::repsurgery.errors.ExtrapolationWarning")  # as in a search
def test_predicted_prices_are_those_at_the_strength_in_force(evidence, bench, split, site, method, scope):
    candidate = canonical(Candidate(site, method, "texts", scope=scope))
    race = Race(bench, split.search, 0.1, None, SITES, evidence.apart)
    form = form_of(candidate, evidence)
    placed, _, _ = race.place(form)
    for one in (placed, placed.scaled(0.5)):
        predicted = bench.kl_along(evidence.apart, one)
        assert 1 / 1.3 < bench.kl([*split.search, *split.confirmation], one) / predicted < 1.3
        # what a file says follows from its certificate and its strength
        certificate = priced(one, predicted).certificate
        if isinstance(certificate, EffectCertificate):
            assert certificate.kl * one.strength**2 == pytest.approx(predicted, rel=1e-5)
            before = form.function.certificate
            assert certificate.predicted_effect == pytest.approx(before.predicted_effect)
            assert certificate.held_out_slope / certificate.held_out_error == pytest.approx(
                before.held_out_slope / before.held_out_error
            )
            assert priced(one, predicted).digest() == certificate.digest == form.function.digest()
        else:
            assert certificate == form.function.certificate


@pytest.mark.parametrize("kl", [0.01, 0.1])
@pytest.mark.parametrize("candidate", MOVES, ids=lambda c: c.name)
def test_the_strength_of_a_price_has_that_price(evidence, candidate, kl):
    form, X = form_of(candidate, evidence), evidence.steps(candidate.site)
    strength = form.strength(kl)
    assert strength == float(f"{strength:.6g}")

    def at_strength(rows):
        return rows + strength * (np.asarray(form.function(rows), dtype=np.float64) - rows)

    assert evidence.judge(candidate.site).kl_on(at_strength, X) == pytest.approx(kl, rel=SIX_DIGITS)
    assert form.strength(4 * kl) == pytest.approx(2 * strength, rel=SIX_DIGITS)


def with_gradients(evidence, draw):
    """Return the evidence with other gradients; ``draw`` gets the number of rows and of features."""
    halves = tuple(
        replace(half, gradients={site: draw(*G.shape) for site, G in half.gradients.items()})
        for half in evidence.halves
    )
    return replace(evidence, halves=halves)


def many_rows(rng, n=40):
    return lambda rows, d: rng.normal(size=(n, d))


def test_the_slope_of_a_candidate_is_held_out(evidence):
    """Credits of pure noise: prompts that took no part see no slope, and those that did see a steep one."""
    natural, held_out, same = Candidate("final", "natural", "on-policy"), [], []
    for seed in range(30):
        noise = with_gradients(evidence, many_rows(np.random.default_rng(seed)))
        form = form_of(natural, noise)
        held_out.append(form.slope)
        G, X = noise.gradients("final"), noise.steps("final")
        shift = (np.asarray(form.function(X), dtype=np.float64) - X).mean(axis=0)
        same.append(float((G @ shift).mean() / math.sqrt(form.unit_kl)))
    error = np.std(held_out, ddof=1) / math.sqrt(len(held_out))
    assert abs(np.mean(held_out)) < 3 * error
    assert np.mean(same) < -10 * error
    assert max(same) < 0


def test_a_direction_that_the_prompts_share_is_found_by_its_slope(evidence):
    g = np.random.default_rng(0).normal(size=evidence.gradients("final").shape[1])
    rng = np.random.default_rng(1)
    shared = with_gradients(evidence, lambda rows, d: g + 0.1 * rng.normal(size=(40, d)))
    form = form_of(Candidate("final", "natural", "on-policy"), shared)
    assert form.slope < -10 * form.slope_error < 0


def test_the_error_of_a_slope_is_that_over_prompts(evidence):
    form = form_of(Candidate("final", "mean", "texts"), evidence)
    X, G = evidence.steps("final"), evidence.gradients("final")
    shift = (np.asarray(form.function(X), dtype=np.float64) - X).mean(axis=0) / math.sqrt(form.unit_kl)
    # a fit on the texts is the same for both halves
    assert form.slope == pytest.approx((G @ shift).mean())
    assert form.slope_error == pytest.approx((G @ shift).std(ddof=1) / math.sqrt(len(G)))


@pytest.mark.parametrize("method", ["mean", "natural"])
def test_a_gate_steers_a_fifth_of_the_steps(evidence, method):
    X = evidence.steps("final")
    function = fitted_function(Candidate("final", method, "on-policy", scope="gate"), evidence)
    moved = np.abs(np.asarray(function(X), dtype=np.float64) - X).max(axis=1) > 0
    assert moved.mean() == pytest.approx(STEERED, abs=2 / len(X))
    everywhere = fitted_function(Candidate("final", method, "on-policy"), evidence)
    assert (np.abs(everywhere(X) - X).max(axis=1) > 0).all()
    # those that it steers are rather the source's: the map of the others is the identity
    (m,) = function.maps.values()
    np.testing.assert_allclose(np.asarray(function(X))[moved], m(X[moved].astype(np.float64)), rtol=1e-6)


def test_a_soft_gate_steers_steps_by_a_part_of_the_map(evidence):
    X = evidence.steps("final").astype(np.float64)
    soft, whole = (
        np.asarray(fitted_function(Candidate("final", "mean", "on-policy", scope=scope), evidence)(X)) - X
        for scope in ("soft", "all")
    )
    parts = np.linalg.norm(soft, axis=1) / np.linalg.norm(whole, axis=1)
    assert parts.min() >= 0
    assert parts.max() <= 1 + 1e-9
    assert ((parts > 0.01) & (parts < 0.99)).mean() > 0.3


def test_a_gated_candidate_has_no_slope(evidence):
    assert form_of(Candidate("final", "mean", "on-policy", scope="gate"), evidence).slope is None
    assert form_of(Candidate("final", "mean", "on-policy"), evidence).slope is not None


def test_a_steering_without_effect_on_predictions_is_refused(evidence):
    d = evidence.fisher("final").dim
    blind = tuple(replace(half, judges={"final": Fisher(1, np.zeros((d, d)))}) for half in evidence.halves)
    with pytest.raises(DataError, match="It changes no prediction"):
        form_of(Candidate("final", "mean", "on-policy"), replace(evidence, halves=blind))


def test_the_gain_is_that_of_the_map_at_its_strength(evidence):
    """Beyond strength 1 a map that shrinks a direction stretches it in the other sense."""
    form = form_of(Candidate("final", "leace", "texts"), evidence)
    (m,) = form.function.maps.values()
    for strength in (0.5, 1.0, 6.0):
        W = (1 - strength) * np.eye(m.dim) + strength * m.weight
        assert form.gain_at(strength) == pytest.approx(np.linalg.norm(W, 2), rel=1e-6)
    assert form.gain_at(6.0) > 3 > form.gain_at(1.0)
    assert form_of(Candidate("final", "mean", "texts"), evidence).gain_at(7.0) == 1.0


@pytest.mark.filterwarnings("ignore::repsurgery.errors.ExtrapolationWarning")
def test_a_natural_shift_on_texts_favours_the_target_texts(evidence, pair):
    """Along it the log-likelihood of target texts rises against that of source texts, and falls along its opposite."""
    form, some = form_of(Candidate("final", "natural", "texts"), evidence), labelled()
    twin = pair[0]

    def contrast(strength):
        steering = {"final": form.function.with_origin(strength=strength)}
        prompts, rests = zip(*(text.split(" ", 1) for text in some.texts), strict=True)
        how = {"steering": steering, "progress": False}
        found = lm.log_likelihoods(twin.model, twin.tokenizer, prompts, [f" {rest}" for rest in rests], **how)
        values = [one.total / len(one.tokens) for one in found]
        sides = [
            np.mean([v for v, z in zip(values, some.labels, strict=True) if z == label]) for label in ("low", "high")
        ]
        return sides[0] - sides[1]

    assert contrast(0.3) > contrast(0.0) + 0.01 > contrast(-0.3) + 0.02


@pytest.mark.filterwarnings("ignore:The part:repsurgery.errors.DuplicateWarning")  # one half is there twice, on purpose
def test_a_half_knows_nothing_of_the_other(evidence):
    """What is fitted on one half does not change with the other one, so that slopes are held out."""
    first, second = evidence.halves
    swapped = replace(evidence, halves=(first, replace(second, moments=first.moments, gradients=first.gradients)))
    for method in ("mean", "natural", "natural-mean", "blend"):
        candidate = canonical(Candidate("final", method, "on-policy"))
        ours, theirs = (fitted_function(candidate, one.half(0)).digest() for one in (evidence, swapped))
        assert ours == theirs
        both, other = (fitted_function(candidate, one).digest() for one in (evidence, swapped))
        assert both != other
