import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import repsurgery as rs
from repsurgery import lm
from repsurgery.datasets import Documents
from repsurgery.tuning.bench import Bench, effect_of
from repsurgery.tuning.candidates import Candidate
from repsurgery.tuning.forms import fitted_function
from tests.lm.tiny_models import texts
from tests.tuning.tiny import PLAN, PROMPTS, LetterScorer

SOME = PROMPTS[:9]


def parts(placed):
    """What a placement stands for, without one."""
    return {placed.site: placed.function.with_origin(strength=placed.strength)}


@pytest.fixture(scope="module")
def placed(evidence):
    return lm.Placement(fitted_function(Candidate("final", "natural", "on-policy"), evidence), "final", 0.4)


def as_texts(generations):
    return [(g.prompt, g.index, g.sample, g.tokens) for g in generations]


def test_the_texts_are_those_of_generate_in_order(bench, placed):
    twin = bench.pair[0]
    how = {"n": PLAN.samples, "max_new_tokens": PLAN.tokens, "seed": 0, "progress": False}
    for steering, one in ((None, None), (parts(placed), placed)):
        expected = lm.generate(twin.model, twin.tokenizer, SOME, steering=steering, **how)
        assert as_texts(bench.written(SOME, one)) == as_texts(expected)
    # steering is what makes the difference
    assert as_texts(bench.written(SOME, None)) != as_texts(bench.written(SOME, placed))


def test_strength_0_is_the_base_and_has_no_effect(bench, placed):
    nothing = replace(placed, strength=0.0)
    assert as_texts(bench.written(SOME, nothing)) == as_texts(bench.written(SOME, None))
    effect = bench.effect(SOME, nothing)
    assert (effect.value, effect.low, effect.high, effect.p) == (0, 0, 0, 1)
    assert bench.kl(SOME, nothing) == 0
    assert bench.effect(SOME, placed).value != 0
    # the noise is the same, so that a weak steering changes few texts; other noise changes most of them
    weak = as_texts(bench.written(SOME, replace(placed, strength=0.01)))
    base = as_texts(bench.written(SOME, None))
    other = as_texts(replace(bench, seed=1).written(SOME, None))
    same = [sum(a == b for a, b in zip(base, row, strict=True)) / len(base) for row in (weak, other)]
    assert same[0] > 0.8 > 0.3 > same[1]


def test_fewer_prompts_are_the_first_of_more(bench, placed):
    whole = bench.written(SOME, placed)
    assert as_texts(bench.written(SOME[:4], placed)) == as_texts(whole)[: 4 * PLAN.samples]
    assert as_texts(bench.written(SOME, placed, samples=1)) == [row for row in as_texts(whole) if row[2] == 0]


# eighths, whose sums are exact: rounding would decide which flips are ties
EIGHTHS = st.integers(0, 8).map(lambda k: k / 8)
VALUES = st.integers(2, 9).flatmap(lambda n: st.tuples(*(st.lists(EIGHTHS, min_size=n, max_size=n),) * 2))


@given(both=VALUES)
def test_the_test_is_the_exact_sign_flip_test(both):
    base, steered = map(np.array, both)
    found = effect_of(base, steered)
    exact = stats.permutation_test(
        (steered, base),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    assert found.p == pytest.approx(exact.pvalue)
    assert found.value == pytest.approx((steered - base).mean())
    assert found.low <= found.value <= found.high
    assert (found.base, found.steered) == pytest.approx((base.mean(), steered.mean()))
    assert found.prompts == len(base)


def test_many_prompts_have_the_p_value_of_many_random_flips():
    rng = np.random.default_rng(0)
    base = rng.uniform(size=30)
    steered = np.clip(base - 0.06 + 0.15 * rng.normal(size=30), 0, 1)
    found = effect_of(base, steered)
    difference = steered - base
    flips = rng.choice([-1, 1], size=(20000, 30)) @ difference / 30
    p = np.mean(np.abs(flips) >= abs(difference.mean()) - 1e-12)
    # both are shares of random flips, of 2,000 at least and of 20,000
    assert found.p == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / 2000))
    assert 0.001 < p < 0.5
    assert effect_of(base, base - 0.1).p < 0.01
    assert effect_of(base, base - 0.1).high < 0


def test_intervals_are_wider_for_fewer_prompts():
    rng = np.random.default_rng(3)
    base, noise = rng.uniform(size=100), 0.2 * rng.normal(size=100)
    few, many = (effect_of(base[:n], (base + noise)[:n]) for n in (10, 100))
    assert few.high - few.low > 1.5 * (many.high - many.low)


def test_the_price_is_the_mean_over_all_tokens_of_the_base(bench, placed):
    generations = bench.written(SOME, None)
    twin = bench.pair[0]
    how = {"batch_size": 4, "progress": False}
    values, reverse = (
        [
            value
            for one in lm.kl_divergence(
                twin.model, twin.tokenizer, generations, parts(placed), direction=direction, **how
            )
            for value in one.values
        ]
        for direction in ("base-steered", "steered-base")
    )
    # every token, and the end token where it was drawn, which may be all there is
    assert any(not g.tokens for g in generations)
    assert len(values) == sum(len(g.tokens) + g.finished for g in generations)
    assert bench.kl(SOME, placed) == pytest.approx(np.mean(values), rel=1e-4)
    assert bench.kl(SOME, placed) != pytest.approx(np.mean(reverse), rel=1e-2)
    first = [g for g in generations if g.sample == 0]
    per_text = lm.kl_divergence(twin.model, twin.tokenizer, first, parts(placed), direction="base-steered", **how)
    expected = np.mean([value for one in per_text for value in one.values])
    assert bench.kl(SOME, placed, samples=1) == pytest.approx(expected, rel=1e-4)


@pytest.mark.filterwarnings("ignore::repsurgery.errors.ExtrapolationWarning")
def test_a_steering_that_leaves_the_number_range_costs_infinitely_much(bench, placed):
    assert bench.kl(SOME[:2], replace(placed, strength=1e38)) == math.inf


def test_nothing_is_written_judged_or_priced_twice(pair, placed, tmp_path, written):
    documents = Documents(tuple(texts(3, seed=2, longest=30)), name="tiny", source="made for tests")
    scorer, passes = LetterScorer(), []
    hooks = [twin.model.register_forward_hook(lambda *_: passes.append(1)) for twin in pair]

    def everything():
        bench = Bench(pair, scorer, PLAN, "mean", 0, tmp_path, documents)
        return bench.effect(SOME, placed), bench.kl(SOME, placed), bench.wikitext_ratio(placed, 2)

    try:
        first = everything()
        counts = len(passes), sum(written), scorer.scored
        files = {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
        assert counts[1] == 2 * len(SOME) * PLAN.samples
        assert everything() == first
        assert (len(passes), sum(written), scorer.scored) == counts
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")} == files
        # another strength is another steering, and the base is not written again
        Bench(pair, scorer, PLAN, "mean", 0, tmp_path).effect(SOME, placed.scaled(2))
        assert sum(written) == 3 * len(SOME) * PLAN.samples
    finally:
        for hook in hooks:
            hook.remove()


def test_the_ratio_is_that_of_the_perplexities(pair, placed, tmp_path):
    documents = Documents(tuple(texts(4, seed=2, longest=30)), name="tiny", source="made for tests")
    bench, twin = Bench(pair, LetterScorer(), PLAN, "mean", 0, tmp_path, documents), pair[0]
    how = {"words": documents.words, "bytes": documents.bytes, "max_length": 64, "progress": False}
    found = lm.document_perplexity(
        twin.model, twin.tokenizer, documents.detokenised, {"base": None, "steered": parts(placed)}, **how
    )
    ratio = found["steered"].word_perplexity / found["base"].word_perplexity
    assert bench.wikitext_ratio(placed, 4) == pytest.approx(ratio, rel=1e-6)
    assert ratio > 1
    assert bench.wikitext_ratio(replace(placed, strength=0.0), 4) == 1
    assert bench.wikitext_ratio(placed, 2) != bench.wikitext_ratio(placed, 4)
    assert replace(bench, documents=None).wikitext_ratio(placed, 4) is None


def test_the_measure_is_a_share_or_a_mean_and_empty_texts_count_0(bench):
    generations = bench.written(SOME, None)
    scores = [score or 0.0 for score in LetterScorer()([g.text for g in generations])]
    rows = np.array(scores).reshape(len(SOME), PLAN.samples)
    np.testing.assert_allclose(bench.values(generations), rows.mean(axis=1))
    np.testing.assert_allclose(replace(bench, measure="share").values(generations), (rows >= 0.5).mean(axis=1))
    empty = [replace(g, text="") for g in generations]
    assert (bench.values(empty) == 0).all()

    class Other(LetterScorer):
        digest = "2" * 64

        def __call__(self, some):
            return [1.0] * len(some)

    assert (bench.values(generations, Other()) == 1).all()
    np.testing.assert_allclose(bench.values(generations), rows.mean(axis=1))


def test_a_strength_can_be_written_down_and_read_again(placed):
    third = placed.scaled(1 / 3)
    assert third.strength == float(f"{third.strength:.6g}") == pytest.approx(0.4 / 3, rel=1e-5)
    assert placed.key != third.key
    assert replace(placed, function=rs.SteeringFunction({None: rs.Translation(np.ones(16))})).key != placed.key
