import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsurgery.datasets import LabelledTexts, hold_out
from repsurgery.errors import ParameterError


def labelled(texts, labels):
    return LabelledTexts(tuple(texts), tuple(labels), name="n", source="s", licence="l")


def many(a=50, b=30):
    return labelled([f"text {i}" for i in range(a + b)], ["a"] * a + ["b"] * b)


def rows(part):
    return list(zip(part.texts, part.labels, strict=True))


@given(
    pairs=st.lists(st.tuples(st.sampled_from("uvwxyz"), st.sampled_from("abc")), min_size=1),
    share=st.floats(0, 0.99),
    seed=st.integers(0, 9),
)
def test_a_text_is_on_one_side_with_all_its_duplicates(pairs, share, seed):
    whole = labelled(*zip(*pairs, strict=True))
    fitted, away = hold_out(whole, share=share, seed=seed)
    assert not {*fitted.texts} & {*away.texts}
    assert Counter(rows(fitted)) + Counter(rows(away)) == Counter(rows(whole))
    assert len(fitted)


def test_a_split_of_rows_would_have_parted_duplicates():
    # the counter-check: 40 rows of 10 texts, split row by row
    whole = labelled([f"text {i % 10}" for i in range(40)], "a" * 40)
    away = {*random.Random(0).sample(range(40), 8)}
    parts = [{whole.texts[i] for i in range(40) if (i in away) == held} for held in (False, True)]
    assert parts[0] & parts[1]


@pytest.mark.parametrize("share", [0.2, 0.25, 0.5])
def test_the_share_holds_for_each_label(share):
    _, away = hold_out(many(60, 20), share=share)
    assert away.counts == {"a": round(60 * share), "b": round(20 * share)}


def test_the_share_counts_distinct_texts():
    whole = labelled(["again"] * 100 + [f"text {i}" for i in range(9)], "a" * 109)
    _, away = hold_out(whole)
    assert len({*away.texts}) == 2


def test_order_and_description_stay():
    whole = many()
    for part in hold_out(whole):
        places = [whole.texts.index(text) for text in part.texts]
        assert places == sorted(places)
        assert (part.name, part.source, part.licence) == ("n", "s", "l")


def test_the_seed_draws_the_texts():
    first, again, other = (hold_out(many(), seed=seed)[1] for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_a_share_of_zero_holds_out_none():
    fitted, away = hold_out(many(), share=0)
    assert fitted == many()
    assert len(away) == 0


@pytest.mark.parametrize("share", [-0.1, 1, 1.5, float("nan"), True, "0.2"])
def test_a_share_is_at_least_zero_and_less_than_one(share):
    with pytest.raises(ParameterError, match=r"share is .*at least 0 .*less than 1"):
        hold_out(many(), share=share)


@given(
    sizes=st.dictionaries(
        st.sampled_from([("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("a", "b", "c")]),
        st.integers(1, 40),
        min_size=1,
    ),
    share=st.floats(0, 0.99),
    seed=st.integers(0, 9),
)
def test_the_share_holds_for_every_set_of_labels_and_a_text_of_each_remains(sizes, share, seed):
    """Texts are drawn among those with the same labels: chance alone would part rare labels unevenly."""
    pairs = [(f"{labels} {i}", label) for labels, n in sizes.items() for i in range(n) for label in labels]
    fitted, away = hold_out(labelled(*zip(*pairs, strict=True)), share=share, seed=seed)
    for labels, n in sizes.items():
        counts = [len({text for text in part.texts if text.startswith(f"{labels} ")}) for part in (fitted, away)]
        assert sum(counts) == n and counts[0] >= 1
        # rounded to whole texts, and less by one only where none would remain
        assert counts[1] == min(int(share * n + 0.5), n - 1)


def test_chance_alone_would_hold_out_too_many_texts_of_some_label():
    # the counter-check: the same shares drawn over all texts at once
    whole = labelled([f"text {i}" for i in range(100)], "a" * 95 + "b" * 5)
    counts = {Counter(whole.labels[i] for i in random.Random(seed).sample(range(100), 20))["b"] for seed in range(20)}
    assert counts != {hold_out(whole, seed=0)[1].counts["b"]} == {1}
