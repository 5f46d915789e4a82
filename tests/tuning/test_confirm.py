from dataclasses import replace

import pytest

from repsurgery import lm
from repsurgery.datasets import Documents
from repsurgery.tuning.candidates import Candidate
from repsurgery.tuning.confirm import PAIRS, confirm
from repsurgery.tuning.forms import fitted_function
from tests.lm.tiny_models import texts
from tests.tuning.tiny import LetterScorer

pytestmark = pytest.mark.filterwarnings("ignore::repsurgery.errors.ExtrapolationWarning")


@pytest.fixture(scope="module")
def placed(evidence):
    return lm.Placement(fitted_function(Candidate("final", "natural", "on-policy"), evidence), "final", 1.0)


@pytest.mark.parametrize("budget", [0.001, 0.03, 0.1, 0.4])
def test_the_confirmed_price_meets_the_budget(bench, split, placed, budget):
    assert bench.kl(split.confirmation, placed) > budget
    found = confirm(bench, split.confirmation, placed, budget=budget, wikitext=None)
    assert 0.7 * budget < found.kl <= budget
    assert found.kl == bench.kl(split.confirmation, found.placed)
    assert found.effect == bench.effect(split.confirmation, found.placed)
    assert found.wikitext_ratio is None


@pytest.mark.parametrize("wikitext", [1.005, 1.05])
def test_the_confirmed_price_meets_a_limit_on_wikitext(bench, split, placed, tmp_path, wikitext):
    documents = Documents(tuple(texts(6, seed=2, longest=40)), name="tiny", source="made for tests")
    own = replace(bench, documents=documents, work=tmp_path)
    free = confirm(own, split.confirmation, placed, budget=0.4, wikitext=None)
    assert free.wikitext_ratio > wikitext
    found = confirm(own, split.confirmation, placed, budget=0.4, wikitext=wikitext)
    assert 1 < found.wikitext_ratio <= wikitext
    assert found.kl == own.kl(split.confirmation, found.placed) < free.kl
    assert found.wikitext_ratio == own.wikitext_ratio(found.placed, own.plan.documents)


def test_a_price_within_the_budget_is_left_alone(bench, split, placed):
    weak = placed.scaled(0.01)
    assert confirm(bench, split.confirmation, weak, budget=0.1, wikitext=None).placed.key == weak.key


def test_a_steering_that_leaves_the_number_range_is_brought_back(bench, split, placed):
    found = confirm(bench, split.confirmation, replace(placed, strength=1e38), budget=0.1, wikitext=None)
    assert 0 < found.kl <= 0.1


def test_the_pairs_depend_on_the_texts_of_the_base_alone(bench, split, placed):
    prompts = split.confirmation
    first, second = (
        confirm(bench, prompts, one, budget=10.0, wikitext=None).pairs for one in (placed, placed.scaled(0.2))
    )
    chosen = [[(pair.prompt, pair.base, pair.base_score) for pair in pairs] for pairs in (first, second)]
    assert chosen[0] == chosen[1]
    assert [pair.steered for pair in first] != [pair.steered for pair in second]
    scores = [pair.base_score for pair in first]
    assert scores == sorted(scores, reverse=True)
    assert len({pair.prompt for pair in first}) == len(first) == PAIRS < len(prompts)
    assert max(scores) == max(bench.scores(bench.written(prompts, None)))


def test_others_judge_the_same_texts(bench, split, placed):
    class Opposite(LetterScorer):
        name, digest = "opposite", "3" * 64

        def __call__(self, some):
            return [None if score is None else 1 - score for score in super().__call__(some)]

    prompts = split.confirmation
    found = confirm(bench, prompts, placed.scaled(0.3), budget=1.0, wikitext=None, others=(Opposite(), LetterScorer()))
    (other, reverse), (_, same) = found.others
    assert other.name == "opposite"
    assert same == found.effect
    # empty texts count 0 for both
    assert reverse.value != found.effect.value
    assert reverse.prompts == len(prompts)
