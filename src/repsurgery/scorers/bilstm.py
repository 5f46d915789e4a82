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
from repsurgery.scorers.base import SCORERS, score_visible
from repsurgery.scorers.recurrent import Direction, RecurrentNetwork

__all__ = ["BiLSTMScorer"]

_PACKAGE = "toxic-comment-classifier"
_COMMAND = f"pip install --no-deps {_PACKAGE}==0.3.0"
_WEIGHTS = "toxic_classifier/model/model.weights.h5"
_TOKENIZER = "toxic_classifier/model/tokenizer.pickle"
# the package describes the architecture in its code and not in its files, so only these files are accepted
_DIGEST = "48eeec88fcb10a5b8cd1352095243f00bd40135c6d0fd9148c1611de057e1947"
_LENGTH = 100
_TOXIC = 0  # of toxic, severe_toxic, obscene, threat, insult, identity_hate

# the pickle holds a Keras tokenizer with counts in a defaultdict(int), which dict(()) replaces
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
    """Return version and digest of the installed files, without parsing them."""
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
            f"Install the supported version: {_COMMAND}"
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
    tokenizer = read_plain_pickle(_path(_TOKENIZER), _STAND_INS)
    frequent = {word: number for word, number in tokenizer.word_index.items() if number < tokenizer.num_words}
    return _Words(frequent, str.maketrans(dict.fromkeys(tokenizer.filters, " ")))


@SCORERS.register("bilstm")
@dataclass(frozen=True, slots=True)
class BiLSTMScorer:
    """Score texts by a bidirectional LSTM trained on Jigsaw's comments, about 5,000 texts a second.

    It reads the last 100 words of its vocabulary. Against 9,949 archived Perspective scores its area under the curve is
    .888. TensorFlow is not needed: h5py reads the weights, and the tokenizer's pickle is read as data, not executed.

    Attributes
    ----------
    name : str
    version : str
        The version of the package that holds the weights.
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
