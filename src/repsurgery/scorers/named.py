"""`load_scorer`: a scorer by its name on a command line or in a specification."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from repsurgery.errors import ParameterError
from repsurgery.files import built_from, read_file
from repsurgery.scorers.base import ToxicityScorer
from repsurgery.scorers.bilstm import BiLSTMScorer
from repsurgery.scorers.calibrated import KIND, CalibratedScorer
from repsurgery.scorers.classifier import ClassifierScorer, DetoxifyScorer
from repsurgery.scorers.linear import LinearScorer
from repsurgery.scorers.replay import ReplayScorer

__all__ = ["SCORER_NAMES", "load_scorer"]


def load_scorer(name: str) -> ToxicityScorer:
    """Return a scorer by name.

    Parameters
    ----------
    name : str
        "linear", "bilstm", "detoxify", "detoxify-unbiased", "detoxify-multilingual"; "hf:<folder or hub id>", with
        "#<label>" behind it for another label than the toxic one; "calibrated:<file>" of a scorer that has such a name
        itself; "replay:<JSON Lines>" of RealToxicityPrompts.

    Raises
    ------
    ParameterError
        No such name; the message lists them.
    MissingExtraError
        A package is absent; the message says how to install it.

    Examples
    --------
    >>> from repsurgery.scorers import load_scorer
    >>> load_scorer("linear").name
    'alt-profanity-check'
    """
    kind, colon, rest = name.partition(":")
    if not colon and name in _SIMPLE:
        return _SIMPLE[name]()
    if rest and kind in _FROM:
        return _FROM[kind](rest)
    raise ParameterError(f"There is no scorer {name!r}. Choose one of {', '.join(SCORER_NAMES)}.")


def _classifier(rest: str) -> ToxicityScorer:
    model, _, label = rest.partition("#")
    return ClassifierScorer(model, label or None)


def _calibrated(path: str) -> ToxicityScorer:
    with built_from("a calibrated scorer", remedy="Fit again."):
        inner = read_file(path, kind=KIND).header["scorer"]
        name, version = str(inner["name"]), str(inner["version"])
    if name in _LOADED_AS:
        return CalibratedScorer.load(path, load_scorer(_LOADED_AS[name]))
    if "#" in name and version != "local":
        return CalibratedScorer.load(path, load_scorer(f"hf:{name}"))
    raise ParameterError(
        f"{path} calibrates {name!r}, which no name leads to. Build that scorer and call "
        "CalibratedScorer.load(file, scorer)."
    )


_SIMPLE: Mapping[str, Callable[[], ToxicityScorer]] = MappingProxyType(
    {
        "linear": LinearScorer,
        "bilstm": BiLSTMScorer,
        "detoxify": DetoxifyScorer,
        "detoxify-unbiased": lambda: DetoxifyScorer("unbiased"),
        "detoxify-multilingual": lambda: DetoxifyScorer("multilingual"),
    }
)
_FROM: Mapping[str, Callable[[str], ToxicityScorer]] = MappingProxyType(
    {"hf": _classifier, "calibrated": _calibrated, "replay": ReplayScorer.from_jsonl}
)
_LOADED_AS = MappingProxyType(
    {
        "alt-profanity-check": "linear",
        "toxic-comment-classifier": "bilstm",
        "detoxify-original": "detoxify",
        "detoxify-unbiased": "detoxify-unbiased",
        "detoxify-multilingual": "detoxify-multilingual",
    }
)

SCORER_NAMES = (*_SIMPLE, "hf:<folder or hub id>[#label]", "calibrated:<file>", "replay:<JSON Lines>")
"""What `load_scorer` takes."""
