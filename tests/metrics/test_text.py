import math

import numpy as np
import pytest

from repsurgery import metrics
from repsurgery.errors import ParameterError

LOG_OVERFLOW = math.log(1e4)


def test_expected_max_toxicity_is_the_mean_of_each_prompts_worst():
    assert metrics.expected_max_toxicity([[0.1, 0.6, 0.2], [0.4, 0.3]]) == pytest.approx((0.6 + 0.4) / 2)


def test_missing_scores_are_skipped_and_unscored_prompts_left_out():
    scores = [[None, 0.2, 0.8], [None, None], [], [0.4]]
    assert metrics.expected_max_toxicity(scores) == pytest.approx((0.8 + 0.4) / 2)
    assert metrics.toxicity_probability(scores) == pytest.approx(1 / 2)


@pytest.mark.parametrize("missing", [math.nan, np.float64("nan"), None])
def test_a_score_that_is_not_a_number_is_no_score(missing):
    # `max` returns a NaN that comes first and loses one that comes later
    scores = [[missing, 0.8], [0.2, missing], [missing], [missing, missing]]
    assert metrics.expected_max_toxicity(scores) == pytest.approx((0.8 + 0.2) / 2)
    assert metrics.toxicity_probability(scores) == pytest.approx(1 / 2)


def test_toxicity_probability_counts_prompts_strictly_above_the_threshold():
    scores = [[0.5, 0.1], [0.5000001], [0.9, 0.9], [0.0]]
    assert metrics.toxicity_probability(scores) == pytest.approx(2 / 4)
    assert metrics.toxicity_probability(scores, threshold=0.05) == pytest.approx(3 / 4)


def test_measures_of_nothing_are_nan():
    assert math.isnan(metrics.expected_max_toxicity([[None]]))
    assert math.isnan(metrics.toxicity_probability([]))
    assert math.isnan(metrics.distinct_n([[]], 1))
    assert math.isnan(metrics.mean_perplexity([1.0], [0]))


@pytest.mark.parametrize(
    ("texts", "n", "expected"),
    [
        # " the cat the" -> '', the, cat, the: 3 distinct of 4 words; the dog -> 1 more of 2
        ([[" the cat the", "the dog"]], 1, 4 / 6),
        # ('', the) (the, cat) (cat, the) (the, dog)
        ([[" the cat the", "the dog"]], 2, 4 / 6),
        # no n-gram spans two continuations
        ([[" the cat the", "the dog"]], 3, 2 / 6),
        # an empty text is one empty word
        ([["", "a"]], 1, 2 / 2),
        ([["", "a"]], 2, 0.0),
        # two spaces hold an empty word; only ' ' separates
        ([["a  b\nc"]], 1, 3 / 3),
        # the mean is over prompts, not over words
        ([["a a a a"], ["a b"]], 1, (1 / 4 + 1) / 2),
    ],
)
def test_distinct_n_pools_a_prompts_words_split_at_single_spaces(texts, n, expected):
    assert metrics.distinct_n(texts, n) == pytest.approx(expected)


def test_perplexity_is_the_plain_mean_over_generations():
    # two tokens of probability 1/4 and 1/16: exp(log(64) / 2) = 8; one token of probability 1/2: 2
    assert metrics.mean_perplexity([math.log(4) + math.log(16), math.log(2)], [2, 1]) == pytest.approx(5.0)


def test_overflowing_nan_and_empty_generations_are_dropped():
    sums = [math.log(3), LOG_OVERFLOW, 1e6, math.inf, math.nan, 0.0, LOG_OVERFLOW - 1e-9]
    counts = [1, 1, 1, 1, 1, 0, 1]
    assert metrics.mean_perplexity(sums, counts) == pytest.approx((3 + 1e4) / 2, rel=1e-6)


def test_arrays_serve_as_well_as_lists():
    assert metrics.expected_max_toxicity(np.array([[0.1, 0.6], [0.4, 0.3]])) == pytest.approx(0.5)
    assert metrics.mean_perplexity(np.log([3.0, 5.0]), np.array([1, 1])) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda: metrics.distinct_n(["a b"], 1), "list of lists"),
        (lambda: metrics.toxicity_probability([0.1, 0.2]), "list of lists"),
        (lambda: metrics.distinct_n([["a"]], 0), "at least 1"),
        (lambda: metrics.mean_perplexity([1.0], [1, 2]), "one of each"),
    ],
)
def test_misshapen_input_is_refused_with_its_remedy(call, remedy):
    with pytest.raises(ParameterError, match=remedy):
        call()
