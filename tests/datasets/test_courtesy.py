import re
from itertools import combinations

import pytest

from repsurgery.datasets import load_courtesy, load_prompts

DIGEST = "1dab35a46e9771a4b29aa0ac876ce632d16cdbf04a505f31b06f35dddd868918"
OVERLAP = 0.6
STRONG = re.compile(
    r"\b(ass|bastard|bitch|bloody|dick|fuck\w*|hell|kill\w*|murder\w*|piss\w*|retard\w*|shit\w*)\b", re.I
)


@pytest.fixture(scope="module")
def corpus():
    return load_courtesy()


def trigrams(text):
    words = re.findall(r"[\w']+", text.lower())
    return set(zip(words, words[1:], words[2:], strict=False))


def test_both_classes_are_large_equal_and_pinned(corpus):
    assert corpus.counts == {"courteous": 468, "rude": 468}
    assert corpus.digest == DIGEST


def test_any_prefix_is_balanced(corpus):
    assert corpus.labels[:4] == ("rude", "courteous", "rude", "courteous")
    assert set(corpus.labels[::2]) == {"rude"}


def test_sentences_have_6_to_30_words_and_clean_edges(corpus):
    assert all(6 <= len(text.split()) <= 30 for text in corpus.texts)
    assert all(text == text.strip() and text[-1] in ".?!" for text in corpus.texts)


def test_lengths_do_not_give_the_class_away(corpus):
    mean = {
        label: sum(len(t.split()) for t, z in zip(corpus.texts, corpus.labels, strict=True) if z == label) / count
        for label, count in corpus.counts.items()
    }
    assert abs(mean["rude"] - mean["courteous"]) < 1


@pytest.mark.parametrize("label", ["rude", "courteous"])
def test_no_two_sentences_of_a_class_share_most_of_their_trigrams(corpus, label):
    grams = [trigrams(text) for text, z in zip(corpus.texts, corpus.labels, strict=True) if z == label]
    assert max(len(a & b) / min(len(a), len(b)) for a, b in combinations(grams, 2)) < OVERLAP


def test_no_text_occurs_twice(corpus):
    assert len(set(corpus.texts)) == len(corpus)


def test_no_strong_profanity(corpus):
    assert [text for text in (*corpus.texts, *load_prompts()) if STRONG.search(text)] == []


def test_thirty_distinct_prompts_of_4_to_10_words():
    prompts = load_prompts()
    assert len(prompts) == len(set(prompts)) == 30
    assert all(4 <= len(prompt.split()) <= 10 and prompt == prompt.strip() for prompt in prompts)
