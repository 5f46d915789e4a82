import re
from itertools import combinations

import pytest

from repsurgery.datasets import load_courtesy, load_prompts, load_provoking_prompts

DIGEST = "1dab35a46e9771a4b29aa0ac876ce632d16cdbf04a505f31b06f35dddd868918"
OVERLAP = 0.6
STRONG = re.compile(
    r"\b(ass|bastard|bitch|bloody|dick|fuck\w*|hell|kill\w*|murder\w*|piss\w*|retard\w*|shit\w*)\b", re.I
)
THREATS_AND_GROUPS = re.compile(
    r"\b(beat|burn you|gun|hit|hurt|knife|punch|shoot|stab|strangle|blind|deaf|disabled|crippled?|insane|crazy"
    r"|m[ae]n|wom[ae]n|girls?|boys?|old|elderly|fat|foreign\w*|immigrants?|black|white|asian|african|arabs?|jew\w*"
    r"|muslims?|christians?|hindus?|gay|lesbian|queer|trans\w*|sex\w*|slut|whore)\b",
    re.I,
)
SECOND_PERSON = re.compile(r"\b(you|your|yourself)\b", re.I)


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
    assert [text for text in (*corpus.texts, *load_prompts(), *load_provoking_prompts()) if STRONG.search(text)] == []


def test_thirty_distinct_prompts_of_4_to_10_words():
    prompts = load_prompts()
    assert len(prompts) == len(set(prompts)) == 30
    assert all(4 <= len(prompt.split()) <= 10 and prompt == prompt.strip() for prompt in prompts)


@pytest.fixture(scope="module")
def provoking():
    return load_provoking_prompts()


def test_240_provoking_prompts_that_differ_in_more_than_case(provoking):
    assert len(provoking) == len({prompt.lower() for prompt in provoking}) == 240


def test_provoking_prompts_have_4_to_12_words_in_ascii_and_clean_edges(provoking):
    assert all(4 <= len(prompt.split()) <= 12 for prompt in provoking)
    assert all(prompt.isascii() and prompt == " ".join(prompt.split()) for prompt in provoking)


def test_provoking_prompts_end_where_a_continuation_has_to_follow(provoking):
    assert [prompt for prompt in provoking if not prompt[-1].isalpha()] == []


def test_every_third_provoking_prompt_leaves_direct_speech_open(provoking):
    assert [prompt.count('"') for prompt in provoking] == [0, 0, 1] * 80


def test_the_second_and_third_person_take_turns_in_provoking_prompts(provoking):
    addressed = [bool(SECOND_PERSON.search(prompt)) for prompt in provoking]
    assert all(addressed[0::3])
    assert not any(addressed[1::3])


def test_provoking_prompts_overlap_neither_with_the_corpus_nor_with_the_neutral_prompts(provoking, corpus):
    texts = [text.lower() for text in corpus.texts]
    assert [prompt for prompt in provoking if any(prompt.lower() in text for text in texts)] == []
    grams = [trigrams(text) for text in texts]
    assert max(len(trigrams(p) & g) / min(len(trigrams(p)), len(g)) for p in provoking for g in grams) < OVERLAP
    assert {prompt.lower() for prompt in provoking}.isdisjoint(prompt.lower() for prompt in load_prompts())


def test_no_two_provoking_prompts_share_most_of_their_trigrams(provoking):
    shares = {
        (a, b): len(trigrams(a) & trigrams(b)) / min(len(trigrams(a)), len(trigrams(b)))
        for a, b in combinations(provoking, 2)
    }
    assert [pair for pair, share in shares.items() if share >= OVERLAP] == []


def test_provoking_prompts_contain_no_threats_and_no_protected_groups(provoking):
    assert [prompt for prompt in provoking if THREATS_AND_GROUPS.search(prompt)] == []
    assert THREATS_AND_GROUPS.search("I will punch that woman")
