"""`LinearScorer`: the linear toxicity model inside the wheel of alt-profanity-check."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path

from repsurgery.errors import MissingExtraError
from repsurgery.scorers.base import SCORERS, score_visible

__all__ = ["LinearScorer"]

_PACKAGE = "alt-profanity-check"
_WEIGHTS = ("profanity_check/data/model.joblib", "profanity_check/data/vectorizer.joblib")
_INSTALL = "The linear toxicity scorer needs alt-profanity-check: pip install 'repsurgery[scorers]'"


@cache
def _identity() -> tuple[str, str]:
    """Return version and digest, read from the installed files without unpickling them."""
    try:
        package = metadata.distribution(_PACKAGE)
    except metadata.PackageNotFoundError as error:
        raise MissingExtraError(_INSTALL) from error
    sha = hashlib.sha256()
    for name in _WEIGHTS:
        sha.update(Path(str(package.locate_file(name))).read_bytes())
    return package.version, sha.hexdigest()


@SCORERS.register("linear")
@dataclass(frozen=True, slots=True)
class LinearScorer:
    """Score texts by a calibrated linear support vector machine on word counts, about 40,000 texts a second.

    Against 9,949 archived Perspective scores its area under the curve is .883. It reads words and not sentences, so
    that an insult and a quotation of it have the same score.

    Attributes
    ----------
    name : str
    version : str
        The version of the package that holds the weights.
    digest : str
        SHA-256 over the weight files.

    Examples
    --------
    >>> from repsurgery.scorers import LinearScorer
    >>> polite, rude, empty = LinearScorer()(["Thank you kindly.", "You stupid idiot.", " "])
    >>> polite < 0.1 < 0.9 < rude, empty
    (True, None)
    """

    name: str = field(default=_PACKAGE, init=False)
    version: str = field(default_factory=lambda: _identity()[0], init=False)
    digest: str = field(default_factory=lambda: _identity()[1], init=False)

    def __call__(self, texts: Sequence[str]) -> list[float | None]:
        """Return the probability (n,) that each text is toxic; None for texts without a visible character."""
        return score_visible(texts, _predict, caller="LinearScorer")


def _predict(texts: list[str]) -> list[float]:
    try:
        from profanity_check import predict_prob
    except ImportError as error:
        raise MissingExtraError(_INSTALL) from error
    scores: list[float] = predict_prob(texts).tolist()
    return scores
