import numpy as np
import pytest

from repsurgery.datasets import DialectModel, load_dialect, load_dialect_stand_in
from repsurgery.datasets.dialect_model import BATCH, tweet_words
from repsurgery.errors import DataError, ParameterError
from tests.datasets.real import real_folder

FILES = ("neg_neg", "neg_pos", "pos_neg", "pos_pos")
WORDS = {"finna": (90, 5, 0, 10), "bro": (40, 30, 5, 50), "the": (50, 50, 50, 90), "lovely": (5, 5, 5, 300)}


def write_tweets(folder):
    for name in FILES:
        (folder / name).write_bytes(f"{name} one \n\n  {name} two\n".encode() + b"bad \xed\xa0 byte\nlast\n")


def write_model(folder):
    folder.mkdir(exist_ok=True)
    (folder / "model_vocab.txt").write_text("".join(f"{sum(n)}\t{word}\n" for word, n in WORDS.items()))
    (folder / "model_count_table.txt").write_text("".join("\t".join(map(str, n)) + "\n" for n in WORDS.values()))
    return folder


def loop_over_words(model, text):
    """The published inference, one word at a time."""
    rates = [model.rates[model.words[word]] for word in tweet_words(text) if word in model.words]
    Q = [rate / rate.sum() for rate in rates]
    for _ in range(4):
        for i, rate in enumerate(rates):
            q = rate * (sum(q for j, q in enumerate(Q) if j != i) + np.ones(4))
            Q[i] = q / q.sum()
    return np.mean(Q, axis=0)


def test_names_of_files_give_sentiment_and_dialect(tmp_path):
    write_tweets(tmp_path)
    found = load_dialect(tmp_path)
    assert found.texts[:4] == ("neg_neg one", "neg_neg two", "bad \ufffd\ufffd byte", "last")
    assert found.labels == ("negative",) * 8 + ("positive",) * 8
    assert found.concepts == (("SAE",) * 4 + ("AAE",) * 4) * 2
    assert found.texts[12] == "pos_pos one"


def test_the_first_tweets_of_each_file_are_kept(tmp_path):
    write_tweets(tmp_path)
    found = load_dialect(tmp_path, per_cell=2)
    assert found.texts == tuple(f"{name} {number}" for name in FILES for number in ("one", "two"))


def test_missing_and_empty_files_of_tweets_are_named(tmp_path):
    with pytest.raises(DataError, match=r"no file .*neg_neg.*demog-text-removal"):
        load_dialect(tmp_path)
    write_tweets(tmp_path)
    (tmp_path / "pos_neg").write_text("\n \n")
    with pytest.raises(DataError, match="pos_neg holds no text"):
        load_dialect(tmp_path)
    with pytest.raises(ParameterError, match="per_cell=0"):
        load_dialect(tmp_path, per_cell=0)


def test_rates_are_smoothed_by_one(tmp_path):
    model = DialectModel.load(write_model(tmp_path))
    sums = np.array(list(WORDS.values())).sum(axis=0)
    rates = (np.array(WORDS["finna"]) + 1) / sums
    # a word alone: the prior is flat, so its posterior is its normalised rates
    np.testing.assert_allclose(model.posterior("Finna"), rates / rates.sum(), rtol=1e-14)


def test_the_batch_is_the_loop_over_words(tmp_path):
    model = DialectModel.load(write_model(tmp_path))
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice([*WORDS, "Unknown"], rng.integers(1, 12))) + " the" for _ in range(BATCH + 50)]
    found = model.posteriors(texts)
    for row in (0, 1, 2, 3, BATCH - 1, BATCH, BATCH + 49):
        np.testing.assert_allclose(found[row], loop_over_words(model, texts[row]), rtol=1e-12)
    np.testing.assert_array_equal(found[7], model.posterior(texts[7]))


def test_a_posterior_is_a_distribution_or_nothing(tmp_path):
    model = DialectModel.load(write_model(tmp_path))
    assert model.groups == ("African-American", "Hispanic", "Other", "White")
    shares = model.posterior("finna go with bro")
    assert shares.shape == (4,)
    assert shares.min() > 0
    assert shares.sum() == pytest.approx(1, abs=1e-15)
    assert model.posterior("nothing known") is None
    assert model.posterior("@finna") is None
    assert model.posterior("") is None
    assert model.posterior("bro a b c d") is not None  # one in five
    assert model.posterior("bro a b c d e") is None
    assert np.isnan(model.posteriors(["", "bro"])[0]).all()
    assert model.posteriors([]).shape == (0, 4)


def test_company_moves_a_word(tmp_path):
    model = DialectModel.load(write_model(tmp_path))
    alone = [model.posterior(word)[0] for word in ("finna", "bro", "bro")]
    assert model.posterior("finna bro bro")[0] > np.mean(alone)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("model_count_table.txt", "1 2 3 4\n", "has 4 words, the table of counts 1 rows"),
        ("model_count_table.txt", "1 2 x 4\n", "is not a table of counts"),
        ("model_count_table.txt", "1 2 4\n" * 4, "needs four columns"),
        ("model_count_table.txt", "1 2 -3 4\n" * 4, "counts >= 0"),
        ("model_count_table.txt", "1 2 0 4\n" * 4, "none of zeros"),
    ],
)
def test_a_damaged_model_is_refused(tmp_path, file, content, message):
    write_model(tmp_path)
    (tmp_path / file).write_text(content)
    with pytest.raises(DataError, match=message):
        DialectModel.load(tmp_path)


def write_stand_in(root, **files):
    contents = {
        "aae_happy": "_TWITTER-ENTITY_ finna go\nfinna go now\nfinna go now\nboth ways\n",
        "aae_sad": "finna cry\nboth ways\n",
        "positive.txt": "@me lovely  lovely day http://a.b\nfinna bro\nlovely &amp; lovely\nunknown words\n@you\n",
        "negative.txt": "lovely but lovely\n",
    } | files
    write_model(root / "twitteraae_dialect_model")
    for name, content in contents.items():
        folder = root / ("sentiment140_100k" if name.endswith(".txt") else "twitteraae_sentiment")
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(content)


def test_the_stand_in_joins_two_corpora_and_says_so(tmp_path):
    write_stand_in(tmp_path)
    found = load_dialect_stand_in(tmp_path)
    rows = list(zip(found.texts, found.labels, found.concepts, strict=True))
    assert rows == [
        ("finna cry", "negative", "AAE"),
        ("_TWITTER-ENTITY_ finna go", "positive", "AAE"),
        ("finna go now", "positive", "AAE"),
        ("lovely but lovely", "negative", "SAE"),
        ("_TWITTER-ENTITY_ lovely lovely day _TWITTER-ENTITY_", "positive", "SAE"),
        ("lovely & lovely", "positive", "SAE"),
    ]
    assert any("confounded with corpus" in caution and "2013" in caution for caution in found.cautions)


def test_the_threshold_decides_about_one_corpus_alone(tmp_path):
    write_stand_in(tmp_path)
    assert "finna bro" not in load_dialect_stand_in(tmp_path).texts
    assert "finna bro" in load_dialect_stand_in(tmp_path, threshold=0).texts
    with pytest.raises(DataError, match=r"No negative tweet is left for SAE at threshold 0\.99\. Lower the threshold"):
        load_dialect_stand_in(tmp_path, threshold=0.99)
    with pytest.raises(ParameterError, match="threshold=2"):
        load_dialect_stand_in(tmp_path, threshold=2)


def test_a_missing_part_of_the_stand_in_is_named(tmp_path):
    write_stand_in(tmp_path)
    (tmp_path / "sentiment140_100k" / "negative.txt").unlink()
    with pytest.raises(DataError, match=r"no file .*negative\.txt.*sentiment140"):
        load_dialect_stand_in(tmp_path)


def test_the_real_stand_in():
    root = real_folder("twitteraae_sentiment", "sentiment140_100k", "twitteraae_dialect_model").parent
    found = load_dialect_stand_in(root)
    assert found.counts == {"negative": {"AAE": 30734, "SAE": 18258}, "positive": {"AAE": 59548, "SAE": 16184}}
    assert len(set(found.texts)) == len(found)
    assert not any("@a" in text or "&amp;" in text or "http://" in text for text in found.texts)


def test_the_real_model_agrees_with_the_loop_over_words():
    model = DialectModel.load(real_folder("twitteraae_dialect_model"))
    texts = ["I'm finna go to the store wit my bro lol", "It was lovely to meet you and the kids yesterday!"]
    for text in texts:
        np.testing.assert_allclose(model.posterior(text), loop_over_words(model, text), rtol=1e-12)
    assert [model.groups[model.posterior(text).argmax()] for text in texts] == ["African-American", "White"]
