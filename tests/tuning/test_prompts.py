import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsurgery.datasets import load_courtesy, load_provoking_prompts
from repsurgery.errors import DataError, ParameterError
from repsurgery.tuning.plan import DEMO, DEMO_QUICK, EFFORTS, Plan, plan_of_effort
from repsurgery.tuning.prompts import LEAST, split_prompts

SMALL = Plan(writing=20, search=8, confirmation=14, writing_samples=6, samples=3)
MANY = [f"Prompt number {i}" for i in range(100)]


def parts(split):
    return split.writing, split.search, split.confirmation


@given(
    prompts=st.lists(st.text(alphabet="abAB \t", min_size=1, max_size=6), min_size=120, max_size=200),
    seed=st.integers(0, 5),
)
def test_no_prompt_is_in_two_parts(prompts, seed):
    # the lists repeat themselves often, also apart from case and white space
    split = split_prompts([*prompts, *MANY], (), SMALL, seed=seed)
    every = [" ".join(prompt.casefold().split()) for part in parts(split) for prompt in part]
    assert len(set(every)) == len(every) == 42
    first, second = split.folds
    assert not set(first) & set(second)
    assert sorted(first + second) == sorted(split.writing)
    # the lists themselves overlap, so that dividing them as they are would not do
    plain = [" ".join(prompt.casefold().split()) for prompt in prompts]
    assert len(set(plain)) < len(plain)


def test_repeated_prompts_are_left_out_with_a_note():
    shouted = [f"  {prompt.upper()} " for prompt in MANY[:7]]
    split = split_prompts([*MANY[:42], *shouted], (), SMALL, seed=0)
    assert sorted(sum(parts(split), ())) == sorted(MANY[:42])
    assert split.notes == ("7 of 49 prompts repeat or continue another prompt, and were left out.",)
    assert split_prompts(MANY[:42], (), SMALL, seed=0).notes == ()
    # a prompt that differs in one word is another prompt
    assert split_prompts([*MANY[:42], "Prompt letter 41!"], (), SMALL, seed=0).notes == ()


def openings(n):
    """Return n openings of the package, which do not repeat each other, without their last word and sign."""
    return [prompt.rstrip(" ,:;") for prompt in load_provoking_prompts()[:n]]


@pytest.mark.parametrize("seed", range(4))
def test_prompts_that_nearly_repeat_each_other_are_in_one_part(seed):
    plan = replace(SMALL, writing=40, search=20, confirmation=40)
    ways = [
        lambda p: p + ".",
        lambda p: p.replace(" ", ", ", 1),
        lambda p: f"RT @someone: {p}",
        lambda p: p.upper() + "!",
    ]
    prompts = [*openings(117), *(ways[i % 4](prompt) for i, prompt in enumerate(openings(117)))]
    split = split_prompts(prompts, (), plan, seed=seed)
    assert [len(part) for part in parts(split)] == [40, 20, 40]
    # by what they are made from: no opening is in two parts
    made = [{prompts.index(prompt) % 117 for prompt in part} for part in parts(split)]
    assert not any(a & b for a, b in ((made[0], made[1]), (made[0], made[2]), (made[1], made[2])))
    # some of them stay together, and those that do not fit are counted
    assert len(made[0]) < 40
    assert re.fullmatch(r"\d+ prompts nearly repeat one of another part, and were left out\.", split.notes[-1])


def test_few_prompts_that_nearly_repeat_each_other_fill_smaller_parts():
    pairs = [way(prompt) for prompt in openings(20) for way in (str, lambda p: p + "!")]
    split = split_prompts(pairs, (), SMALL, seed=0)
    sizes = [len(part) for part in parts(split)]
    assert all(size >= least for size, least in zip(sizes, LEAST.values(), strict=True))
    left_out = int(re.match(r"(\d+) prompts nearly repeat", split.notes[-1])[1])
    assert sum(sizes) + left_out <= 40 and left_out > 0
    # forty prompts that all say the same are one opening
    same = [openings(1)[0] + sign * i for sign in "!?" for i in range(1, 21)]
    with pytest.raises(DataError, match=r"prompts nearly repeat one of another part, and were left out\.\); a search"):
        split_prompts(same, (), SMALL, seed=0)


def test_prompts_that_do_not_repeat_each_other_are_drawn_as_before():
    """Counter-check, with the prompts of the zoo: the rule leaves none out, and the draw alone decides."""
    prompts = load_provoking_prompts()
    split = split_prompts(prompts, load_courtesy().texts, SMALL, seed=3)
    drawn = [prompts[i] for i in np.random.default_rng(3).permutation(len(prompts))]
    assert split.notes == () and sum(parts(split), ()) == tuple(drawn[:42])


def test_prompts_that_continue_another_one_are_left_out():
    longer = [f"{prompt} and more" for prompt in MANY[:5]]
    split = split_prompts([*longer, *MANY[:42]], (), SMALL, seed=0)
    assert sorted(sum(parts(split), ())) == sorted(MANY[:42])
    assert split.notes == ("5 of 47 prompts repeat or continue another prompt, and were left out.",)
    # two words in common are chance
    assert split_prompts([*MANY[:42], "Two words", "Two words more"], (), SMALL, seed=0).notes == ()


def test_prompts_that_occur_in_the_texts_are_left_out_with_a_note():
    long = "this prompt has five words"
    prompts = [*MANY[:42], long, "Two words"]
    alone = split_prompts(prompts, ["two  WORDS", f"He said: {long.upper()}, and left."], SMALL, seed=0)
    assert sorted(sum(parts(alone), ())) == sorted(MANY[:42])
    assert alone.notes == ("2 prompts occur in the texts, and were left out.",)
    # short prompts occur inside of texts by chance, and two texts are not one
    kept = split_prompts(prompts, ["He said two words and left.", "this prompt has", "five words"], SMALL, seed=0)
    assert kept.notes == ()


@pytest.mark.parametrize("plan", [SMALL, *EFFORTS.values(), DEMO, DEMO_QUICK], ids=str)
def test_the_number_of_prompts_that_is_named_suffices(plan):
    with pytest.raises(DataError, match=r"There are 3 usable prompts; a search needs at least \d+: 8 .* 6 .* 10 ") as e:
        split_prompts(MANY[:3], (), plan, seed=0)
    needed = int(re.search(r"at least (\d+)", str(e.value))[1])
    assert f"Add at least {needed - 3} more." in str(e.value)
    assert needed == sum(LEAST.values())
    enough = [f"Prompt {i}" for i in range(needed)]
    split = split_prompts(enough, (), plan, seed=0)
    assert all(len(part) >= least for part, least in zip(parts(split), LEAST.values(), strict=True))
    with pytest.raises(DataError, match=rf"at least {needed}: .* Add at least 1 more"):
        split_prompts(enough[1:], (), plan, seed=0)


def test_what_was_left_out_is_named_where_too_few_remain():
    with pytest.raises(
        DataError, match=r"There are 20 usable prompts \(20 of 40 prompts repeat or continue another prompt"
    ):
        split_prompts(MANY[:20] * 2, (), SMALL, seed=0)


def test_the_seed_decides_the_split():
    first, again, other = (split_prompts(MANY, (), SMALL, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert all(set(a) != set(b) for a, b in zip(parts(first), parts(other), strict=True))
    # the order in the file does not decide who is drawn for what
    assert first.writing != tuple(MANY[:20])


@pytest.mark.parametrize("count", [42, 60, 100])
def test_more_prompts_than_the_plan_asks_for_are_not_used(count):
    split = split_prompts(MANY[:count], (), SMALL, seed=0)
    assert [len(part) for part in parts(split)] == [20, 8, 14]


@pytest.mark.parametrize("name", ["writing", "search", "confirmation"])
def test_a_plan_below_the_least_sizes_is_refused_in_words(name):
    plan = replace(SMALL, **{name: LEAST[name] - 1})
    with pytest.raises(ParameterError, match=rf"{name} is {LEAST[name] - 1}; .* at least {LEAST[name]}"):
        split_prompts(MANY, (), plan, seed=0)
    assert split_prompts(MANY, (), replace(SMALL, **{name: LEAST[name]}), seed=0).notes == ()


@pytest.mark.parametrize("prompts", ["one text", [1, 2], [*MANY, None]])
def test_prompts_that_are_not_texts_are_refused(prompts):
    with pytest.raises(ParameterError, match="prompts must be a list of texts"):
        split_prompts(prompts, (), SMALL, seed=0)


def test_sizes_and_efforts_are_checked():
    assert plan_of_effort("quick") is EFFORTS["quick"]
    with pytest.raises(ParameterError, match=r"effort is 'slow'; it must be one of \['quick', 'normal', 'thorough'\]"):
        plan_of_effort("slow")
    for wrong in (0, -1, 1.5, True, "8"):
        with pytest.raises(ParameterError, match=r"samples is .*; it must be a whole number of at least 1"):
            replace(SMALL, samples=wrong)
    assert replace(SMALL, proposals=0).proposals == 0
