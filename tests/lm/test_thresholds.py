import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsurgery import lm
from repsurgery.errors import ParameterError
from repsurgery.lm.generate.generate import Generation
from repsurgery.lm.policy.credit import Rule
from repsurgery.lm.policy.thresholds import ENOUGH, settle
from tests.lm.test_on_policy import PROMPTS, WordScorer, assert_identical

SCORES = st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=80)
COARSE = st.lists(st.sampled_from([None, 0.0, 0.1, 0.5, 0.9, 1.0]), max_size=80)
FIXED = st.floats(0, 1)
ONE_STEP = Generation("", 0, 0, " w1", (5,), finished=False, prompt_tokens=(1,))


@given(scores=st.one_of(SCORES, COARSE), source_at=st.one_of(st.just("auto"), FIXED), target_at=FIXED)
def test_automatic_thresholds_separate_the_classes(scores, source_at, target_at):
    source, target = settle(source_at, "auto", scores)
    assert target < source
    source, target = settle("auto", target_at, scores)
    assert target < source
    source, target = settle("auto", "auto", scores)
    known = [score for score in scores if score is not None]
    high, low = [s for s in known if s >= source], [s for s in known if s <= target]
    assert not set(high) & set(low)
    # counter-check: without the last step the classes would meet where most scores are equal
    if len(known) >= 2 and len(set(known)) == 1:
        assert len(high) == len(known)
        assert not low


@given(scores=st.one_of(SCORES, COARSE))
def test_two_scores_make_two_classes(scores):
    source, target = settle("auto", "auto", scores)
    known = {score for score in scores if score is not None}
    assert any(score >= source for score in known) == bool(known)
    assert any(score <= target for score in known) == (len(known) >= 2)


@given(scores=SCORES, source_at=FIXED, target_at=FIXED)
def test_thresholds_that_are_stated_are_kept(scores, source_at, target_at):
    assert settle(source_at, target_at, scores) == (source_at, target_at)
    assert settle(source_at, "auto", scores)[0] == source_at
    assert settle("auto", target_at, scores)[1] == target_at


def test_a_fifth_of_the_texts_is_in_each_class():
    scores = np.linspace(0, 1, 201)
    source, target = settle("auto", "auto", scores.tolist())
    assert (source, target) == pytest.approx((0.8, 0.2))
    # but every text from .9 on, none below .5, and ENOUGH texts where there are few of them
    assert settle("auto", "auto", [0.95] * 100 + [0.05] * 100) == (0.9, 0.1)
    assert settle("auto", "auto", (0.6 * scores).tolist())[0] == 0.5
    assert settle("auto", "auto", (0.4 + 0.6 * scores).tolist())[1] == 0.5
    low = (0.2 * scores).tolist()
    assert sum(score >= settle("auto", "auto", low)[0] for score in low) == ENOUGH
    assert sum(score <= settle("auto", "auto", [1 - s for s in low])[1] for score in [1 - s for s in low]) == ENOUGH


def graded(some):
    """Score a text by the share of its words below w10."""
    return [np.mean([len(word) == 2 for word in text.split()]) if text.strip() else None for text in some]


@pytest.mark.parametrize("credit", ["text", "step"])
def test_auto_is_the_same_as_the_settled_numbers(model, tokenizer, credit):
    how = {"samples": 4, "max_new_tokens": 7, "progress": False, "credit": credit}
    found = lm.on_policy(model, tokenizer, PROMPTS, graded, source_at="auto", target_at="auto", **how)
    source_at, target_at = settle("auto", "auto", found.scores)
    expected = lm.on_policy(model, tokenizer, PROMPTS, graded, source_at=source_at, target_at=target_at, **how)
    assert_identical(found, expected)
    assert lm.on_policy(model, tokenizer, PROMPTS, graded, source_at=0.5, target_at=0.2, **how).counts != found.counts


@pytest.mark.parametrize("name", ["source_at", "target_at"])
@pytest.mark.parametrize("wrong", ["automatic", None, True, math.nan, math.inf, [0.5]])
@pytest.mark.parametrize("other", [0.3, "auto"])
def test_wrong_thresholds_are_refused_before_anything_is_written(model, tokenizer, name, wrong, other):
    asked = {"source_at": other, "target_at": other, name: wrong}
    scorer = WordScorer()
    with pytest.raises(ParameterError, match=f"{name} is .*; it must be a finite number.*or 'auto'"):
        lm.on_policy(model, tokenizer, PROMPTS, scorer, progress=False, **asked)
    assert scorer.calls == 0


@given(
    low=st.floats(0, 1),
    scores=st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=2, max_size=60),
    raised=st.booleans(),
)
def test_scores_at_a_threshold_are_in_its_class(low, scores, raised):
    # many scores are equal, so that thresholds fall on scores; each class includes its own threshold
    shifted = [low / 8 + score / 2 if raised else score for score in scores]
    source, target = settle("auto", "auto", shifted)
    rule = Rule("text", source, target, 0.1)
    codes = [int(rule.of_text(ONE_STEP, score)[0]) for score in shifted]
    assert codes == [0 if score >= source else 1 if score <= target else -1 for score in shifted]
    # a class exists on both sides whenever two scores differ, and its threshold is the best that leaves both
    assert (0 in codes and 1 in codes) or len(set(shifted)) == 1
    if len(set(shifted)) > 1:
        assert min(shifted) < source <= max(shifted)
        assert source > target >= min(shifted)


@pytest.mark.parametrize("count", [4, 20, 160])
def test_where_most_texts_share_the_lowest_score_they_are_the_target(count):
    # the fifth with the highest scores would reach down to the shared one, which the target needs
    assert settle("auto", "auto", [0.6] * count + [0.7, 0.8]) == (0.7, 0.6)


@given(
    prefixes=st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.4, 0.9]), min_size=1, max_size=8),
    target_at=st.sampled_from([0.1, 0.3]),
    step_at=st.sampled_from([0.05, 0.15, 0.5]),
)
def test_the_end_token_changes_no_score(prefixes, target_at, step_at):
    tokens, rule = tuple(range(len(prefixes) - 1)), Rule("step", 0.5, target_at, step_at)
    going, ended = (
        rule.of_steps(Generation("", 0, 0, "", tokens, finished=finished), np.array(prefixes))
        for finished in (False, True)
    )
    # the step that ends the text adds nothing to it: it belongs to the target where the text does, never to the source
    assert ended.tolist() == [*going.tolist(), 1 if prefixes[-1] <= target_at else -1]
    assert len(going) == len(tokens)
