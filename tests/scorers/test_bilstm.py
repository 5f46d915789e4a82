import dataclasses
import subprocess
import sys
from importlib import metadata

import h5py
import numpy as np
import pytest

from repsurgery.errors import DataError, MissingExtraError, ModelError
from repsurgery.scorers import BiLSTMScorer, ToxicityScorer, agreement, bilstm, read_archived
from repsurgery.scorers.recurrent import Direction, RecurrentNetwork
from tests.datasets.real import real_folder

try:
    metadata.distribution("toxic-comment-classifier")
except metadata.PackageNotFoundError:
    pytest.skip("the weights are in toxic-comment-classifier, which is not installed", allow_module_level=True)

# column "toxic" of the package's own model, run by TensorFlow 2 on the CPU
KERAS = {
    "Thank you kindly.": 0.03439083,
    "You stupid idiot.": 0.99712312,
    "zzzqqq xxyyzz": 0.067534067,  # no word that it knows
    "word " * 150 + "you idiot": 0.88133943,  # the end counts
    "You idiot. " + "the weather is nice today " * 40: 0.0099544143,  # and the beginning does not
    "I'll KILL you!!! tab\there\nnewline": 0.70861763,
    "Ünïcode café İstanbul — “quotes”": 0.0080561871,
    "hello-world_foo.bar": 0.10028628,
    "a": 0.19160677,
}
ROUNDING = 1e-6
"""Two hundred steps of float32 in another order; 110 texts differed by 2e-7 at most."""


def test_it_is_a_scorer_with_name_version_and_digest():
    scorer = BiLSTMScorer()
    assert isinstance(scorer, ToxicityScorer)
    assert (scorer.name, scorer.version) == ("toxic-comment-classifier", "0.3.0")
    assert scorer.digest == bilstm._DIGEST
    with pytest.raises(dataclasses.FrozenInstanceError):
        scorer.version = "2"


def test_scores_equal_those_of_the_package_itself():
    np.testing.assert_allclose(BiLSTMScorer()(list(KERAS)), list(KERAS.values()), rtol=0, atol=ROUNDING)


def test_texts_keep_their_places_and_empty_ones_score_none():
    scorer = BiLSTMScorer()
    texts = ["You idiot.", "", *KERAS, " \n"]
    together = scorer(texts)
    alone = [scorer([text])[0] for text in texts]
    assert [score is None for score in together] == [not text.strip() for text in texts]
    known = [(a, b) for a, b in zip(together, alone, strict=True) if a is not None]
    np.testing.assert_allclose(*zip(*known, strict=True), rtol=0, atol=ROUNDING)
    assert scorer([]) == []
    with pytest.raises(DataError, match=r"Pass \[text\]"):
        scorer("one text")


def test_neither_tensorflow_nor_the_package_nor_torch_is_imported():
    script = (
        "import sys; from repsurgery.scorers import BiLSTMScorer; BiLSTMScorer()(['text']);"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'tensorflow', 'keras', 'toxic_classifier', 'torch'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def random_network(*, length, seed=0, words=30, d=4, u=3):
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return rng.normal(size=shape).astype(np.float32)

    forward, backward = (Direction(draw(d, 4 * u), draw(u, 4 * u), draw(4 * u)) for _ in range(2))
    return RecurrentNetwork(
        draw(words, d), forward, backward, (draw(2 * u, 5), draw(5)), (draw(5, 2), draw(2)), length=length
    )


def logistic(x):
    return 1 / (1 + np.exp(-x))


def by_the_book(network, row):
    """The network on one padded row in float64, word by word, as Hochreiter and Schmidhuber with a forget gate."""
    row = [0] * (network.length - len(row)) + list(row[-network.length :])
    peaks = []
    for direction, words in ((network.forward, row), (network.backward, row[::-1])):
        u = len(direction.recurrent)
        h = c = np.zeros(u)
        outputs = []
        for word in words:
            gates = network.embedding[word].astype(float) @ direction.kernel + h @ direction.recurrent + direction.bias
            i, f, g, o = np.split(gates, 4)
            c = logistic(f) * c + logistic(i) * np.tanh(g)
            h = logistic(o) * np.tanh(c)
            outputs.append(h)
        peaks.append(np.max(outputs, axis=0))
    hidden = np.maximum(np.concatenate(peaks) @ network.hidden[0] + network.hidden[1], 0)
    return logistic(hidden @ network.output[0] + network.output[1])


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_the_padding_read_once_changes_nothing(batch_size):
    network = random_network(length=12)
    rng = np.random.default_rng(1)
    rows = [rng.integers(1, 30, size=n).tolist() for n in (5, 0, 12, 1, 40, 11, 7)]
    expected = [by_the_book(network, row) for row in rows]
    np.testing.assert_allclose(network(rows, batch_size=batch_size), expected, rtol=0, atol=ROUNDING)
    # the counter-check: without the padding the numbers are others
    shorter = dataclasses.replace(network, length=5)
    assert np.abs(shorter([rows[0]])[0] - expected[0]).max() > 100 * ROUNDING


def test_no_rows_give_no_scores():
    assert random_network(length=4)([]).shape == (0, 2)


def test_extreme_gates_neither_overflow_nor_warn():
    network = random_network(length=6)
    loud = dataclasses.replace(network, embedding=network.embedding * np.float32(1e4))
    assert np.isfinite(loud([[1, 2, 3]])).all()


def test_without_the_wheel_one_command_mends_it(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    bilstm._identity.cache_clear()
    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(MissingExtraError, match=r"pip install --no-deps toxic-comment-classifier==0\.3\.0"):
        BiLSTMScorer()


def test_without_h5py_the_error_names_the_extra(monkeypatch):
    scorer = BiLSTMScorer()
    bilstm._network.cache_clear()
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'repsurgery\[scorers\]'"):
        scorer(["text"])


def test_other_weights_are_another_model(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = np.zeros(3)
    bilstm._identity.cache_clear()
    for name in ("other.h5", "absent.h5"):
        monkeypatch.setattr(bilstm, "_path", lambda _, name=name: tmp_path / name)
        with pytest.raises(ModelError, match="Install the supported version: pip install --no-deps"):
            BiLSTMScorer()


def test_it_ranks_archived_texts_as_published():
    found = agreement(BiLSTMScorer(), *read_archived(real_folder("realtoxicityprompts_quark_val") / "val.jsonl"))
    assert found.texts == 9949
    assert found.auc == pytest.approx(0.888, abs=5e-4)
    assert found.spearman == pytest.approx(0.730, abs=5e-4)
