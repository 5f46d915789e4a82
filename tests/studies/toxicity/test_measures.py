import math

import numpy as np
import pytest

from repsurgery import metrics
from repsurgery.studies.toxicity.measures import Judged, measure

NAN = math.nan


def judged(rng, prompts=12, samples=4, shift=0.0):
    texts = [
        [" ".join(rng.choice(list("abcdef"), size=rng.integers(0, 6))) for _ in range(samples)] for _ in range(prompts)
    ]
    scores = [[None if rng.random() < 0.2 else float(rng.random()) * (1 - shift) for _ in row] for row in texts]
    scores[3] = [None] * samples
    scores[4] = [0.5] * samples
    # an empty text, one that merges away, a NaN, and one beyond every bound
    odd = [(0.0, 0), (2.0, -1), (NAN, 3), (9000.0, 2), (math.log(10_001), 1), (math.log(9_999), 1)]
    texts[0] += ["two more texts", "for the odd ones"]
    fluency = [odd, *([(float(rng.uniform(1, 30)), int(rng.integers(1, 8))) for _ in row] for row in texts[1:8])]
    read = [*fluency, *([] for _ in texts[8:])]
    other = [[(nll / 2, 2 * n) for nll, n in row] for row in read]
    return Judged(texts, {"linear": scores}, {"own": read, "other": other})


def bits_per_character(one, judge):
    read = [
        (nll, len(text))
        for texts, row in zip(one.texts, one.fluency[judge], strict=True)
        for text, (nll, n) in zip(texts, row, strict=False)
        if n > 0 and nll / n < math.log(10_000)
    ]
    return sum(nll for nll, _ in read) / math.log(2) / sum(length for _, length in read)


@pytest.fixture
def two():
    rng = np.random.default_rng(0)
    return {"base": judged(rng), "steered": judged(rng, shift=0.6)}


def test_measures_are_those_of_metrics(two):
    found = measure(two, reference="base", resamples=50, seed=0)
    for name, one in two.items():
        values = {key: estimate.value for key, estimate in found[name][0].items()}
        scores = one.toxicity["linear"]
        pairs, others = ([pair for row in rows for pair in row] for rows in one.fluency.values())
        known = [s for row in scores for s in row if s is not None]
        assert values == pytest.approx(
            {
                "linear.expected_max_toxicity": metrics.expected_max_toxicity(scores),
                "linear.toxicity_probability": metrics.toxicity_probability(scores),
                "linear.mean_toxicity": sum(known) / len(known),
                "perplexity": metrics.mean_perplexity([nll for nll, _ in pairs], [n for _, n in pairs]),
                "perplexity.other": metrics.mean_perplexity([nll for nll, _ in others], [n for _, n in others]),
                "bits_per_character": bits_per_character(one, "own"),
                "bits_per_character.other": bits_per_character(one, "other"),
                **{f"distinct.{k}": metrics.distinct_n(one.texts, k) for k in (1, 2, 3)},
            },
            rel=1e-12,
        )


def test_differences_are_paired(two):
    found = measure(two, reference="base", resamples=400, seed=0)
    assert found["base"][1] == {}
    for key, difference in found["steered"][1].items():
        base, steered = found["base"][0][key], found["steered"][0][key]
        assert difference.value == pytest.approx(steered.value - base.value, abs=1e-12)
        assert difference.low <= difference.value <= difference.high
    same = measure({"base": two["base"], "again": two["base"]}, reference="base", resamples=50, seed=0)
    # the same texts differ by nothing in any resample, though each measure varies; of a share, which is not resampled,
    # no change in so few prompts does not prove that there is none in others
    for name, d in same["again"][1].items():
        assert d.value == 0 and d.p_value == 1
        assert d.low < 0 < d.high if name.endswith("probability") else d.low == d.high == 0, name
    emt = same["again"][0]["linear.expected_max_toxicity"]
    assert emt.low < emt.value < emt.high


def test_a_measure_without_value_is_left_out(two):
    silent = Judged(two["base"].texts, {"linear": [[None] * 4] * 12}, {"own": [[]] * 12, "other": [[]] * 12})
    found = measure({**two, "silent": silent}, reference="base", resamples=20, seed=0)
    assert set(found["silent"][0]) == {"distinct.1", "distinct.2", "distinct.3"}
    assert "perplexity" in found["steered"][1]


def test_maxima_keep_prompts_in_place(two):
    maxima = two["base"].maxima("linear")
    assert len(maxima) == 12 and maxima[3] is None
    assert maxima[0] == max(s for s in two["base"].toxicity["linear"][0] if s is not None)


def test_fewer_prompts_are_a_study_of_their_own(two):
    few = two["steered"].first(9)
    found = measure({**two, "few": few}, reference="base", resamples=50, seed=0)
    # of as many rows, because resamples grow with the number of tests that are corrected together
    rows = {"base": two["base"].first(9), "few": few, "again": few}
    assert found["few"] == measure(rows, reference="base", resamples=50, seed=0)["few"]
    # the others are as if it were not there, and all prompts give other figures
    whole = measure({**two, "again": two["steered"]}, reference="base", resamples=50, seed=0)
    assert {name: found[name] for name in two} == {name: whole[name] for name in two}
    assert found["few"][1] != found["steered"][1]
