import math
from dataclasses import replace

import numpy as np
import pytest

import repsurgery as rs
from repsurgery.price import Fisher
from repsurgery.tuning.candidates import METHODS_OF_PAPER, Candidate, candidates
from repsurgery.tuning.forms import MOST_GAIN, form_of
from repsurgery.tuning.offers import Offer
from repsurgery.tuning.prune import MOST_SLOPE_ERRORS, SAME, prune
from tests.tuning.tiny import SITES


@pytest.fixture(scope="module")
def every(evidence):
    return list(filter(evidence.supports, candidates(SITES, evidence.fits)))


@pytest.fixture(scope="module")
def pruned(evidence, every):
    return prune(every, evidence, kl=0.1, most=3)


def reason_of(pruned, candidate):
    (reason,) = (one.reason for one in pruned.dropped if one.candidate == candidate)
    return reason


def test_every_candidate_is_kept_or_dropped_with_a_sentence(pruned, every):
    kept, dropped = [form.candidate for form in pruned.forms], [one.candidate for one in pruned.dropped]
    assert sorted(one.name for one in kept + dropped) == sorted(one.name for one in every)
    assert all(one.reason.endswith(".") for one in pruned.dropped)
    starts = ("It equals mean matching", "Its held-out slope shows no effect", "3 candidates have a steeper slope")
    assert all(any(one.reason.startswith(start) for one in pruned.dropped) for start in starts)


def test_the_steepest_come_first_and_no_dropped_one_is_steeper(pruned):
    slopes = [form.slope for form in pruned.forms]
    assert slopes == sorted(slopes)
    assert len(slopes) == 3
    many = [one.form.slope for one in pruned.dropped if "steeper slope" in one.reason]
    assert min(many) >= max(slopes)


def test_the_number_of_candidates_is_limited_by_the_plan_alone(evidence, every, pruned):
    more = prune(every, evidence, kl=0.1, most=100)
    assert len(more.forms) > 3
    assert [f.candidate for f in more.forms][:3] == [f.candidate for f in pruned.forms]
    assert not any("steeper slope" in one.reason for one in more.dropped)


def test_mimic_without_a_covariance_of_its_own_is_mean_matching(evidence, pruned):
    mimic, mean = Candidate("final", "mimic", "on-policy", "pooled"), Candidate("final", "mean", "on-policy")
    assert reason_of(pruned, mimic).startswith("It equals mean matching")
    X = evidence.steps("final")
    np.testing.assert_allclose(
        form_of(mimic, evidence).function(X), form_of(mean, evidence).function(X), rtol=1e-5, atol=1e-6
    )
    # half of the class's own covariance makes another map, which is not dropped for this reason
    own = replace(mimic, shrinkage="pooled 0.5")
    assert all("mean matching" not in one.reason for one in pruned.dropped if one.candidate == own)
    assert np.abs(form_of(own, evidence).function(X) - form_of(mean, evidence).function(X)).max() > 1e-2


def test_a_slope_within_its_error_shows_no_effect(evidence, every):
    found = prune(every, evidence, kl=0.1, most=100)
    weak = [one.form for one in found.dropped if "shows no effect" in one.reason]
    assert weak
    assert all(form.slope > -MOST_SLOPE_ERRORS * form.slope_error for form in weak)
    assert all(form.slope <= -MOST_SLOPE_ERRORS * form.slope_error for form in found.forms)


def test_a_direction_is_measured_once(evidence):
    d = evidence.fisher("final").dim
    same = {"final": Fisher(1, np.eye(d))}
    # where every direction costs the same, damping does not change the direction of a natural shift
    round_ = tuple(replace(half, fishers=same, judges=same) for half in evidence.halves)
    alike = [Candidate("final", "natural", "on-policy", damping=damping) for damping in (0.3, 1.0)]
    found = prune(alike, replace(evidence, halves=round_), kl=0.1, most=5)
    assert [form.candidate for form in found.forms] == alike[:1]
    assert reason_of(found, alike[1]) == f"Its direction is that of {alike[0].name}."
    assert len(prune(alike, evidence, kl=0.1, most=5).forms) == 1 + (cosine(evidence, alike) <= SAME)


def cosine(evidence, both):
    F, X = evidence.fisher("final").matrix, evidence.steps("final")
    u, v = (form_of(one, evidence).direction(X) for one in both)
    return u @ F @ v / math.sqrt((u @ F @ u) * (v @ F @ v))


def test_a_map_that_stretches_too_far_is_dropped(evidence):
    mimic = Candidate("final", "mimic", "on-policy", "pooled 0.5")
    form = form_of(mimic, evidence)
    limit = form.unit_kl * ((MOST_GAIN - 1) / (form.gain - 1)) ** 2
    assert "stretches a direction 3.0 times" in reason_of(prune([mimic], evidence, kl=1.01 * limit, most=5), mimic)
    assert [f.candidate for f in prune([mimic], evidence, kl=0.99 * limit, most=5).forms] == [mimic]
    # a shift stretches nothing at any price
    mean = Candidate("final", "mean", "on-policy")
    assert [f.candidate for f in prune([mean], evidence, kl=1.01 * limit, most=5).forms] == [mean]


def test_what_cannot_be_fitted_is_dropped_with_the_error(evidence):
    d = evidence.fisher("final").dim
    blind = tuple(replace(half, judges={"final": Fisher(1, np.zeros((d, d)))}) for half in evidence.halves)
    mean = Candidate("final", "mean", "on-policy")
    found = prune([mean], replace(evidence, halves=blind), kl=0.1, most=5)
    assert reason_of(found, mean) == "It cannot be fitted: It changes no prediction."
    assert found.dropped[0].form is None
    assert (found.forms, found.paper) == ([], [])


def test_the_methods_of_the_paper_are_compared_at_the_site_of_the_best(pruned):
    best = pruned.forms[0].candidate
    *paper, elsewhere = [form.candidate for form in pruned.paper]
    assert [one.method for one in paper] == list(METHODS_OF_PAPER)
    assert {(one.site, one.fit) for one in paper} == {(best.site, "texts")}
    (other,) = {*SITES} - {best.site}
    assert elsewhere == Candidate(other, "mean", "texts")
    # also where a closed form dropped them
    assert {form.candidate for form in pruned.paper} & {one.candidate for one in pruned.dropped}


def test_what_nothing_is_known_of_is_measured_after_the_others(evidence, every):
    rng, d = np.random.default_rng(0), evidence.fisher("final").dim
    unknown = [
        Offer(
            Candidate("final", "acme", "evidence", text=f"shift {i}"),
            rs.SteeringFunction({None: rs.Translation(rng.normal(size=d))}),
        )
        for i in range(4)
    ]
    alone, found = (prune(some, evidence, kl=0.1, most=2) for some in (every, [*every, *unknown]))
    names = [form.candidate.name for form in found.forms]
    assert names == [*(form.candidate.name for form in alone.forms), "shift 0", "shift 1"]
    assert reason_of(found, unknown[3].candidate) == ("2 candidates come before it, of whose slope nothing is known.")
    # with a slope they are ranked like every other candidate
    known = [replace(one, half=lambda number, one=one: one.function) for one in unknown]
    slopes = [form.slope for form in prune([*every, *known], evidence, kl=0.1, most=2).forms]
    assert len(slopes) == 2 and None not in slopes
