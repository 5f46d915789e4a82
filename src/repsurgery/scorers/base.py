"""`ToxicityScorer`: what every scorer of texts offers; `load_scorer`: scorers by name."""

import inspect
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from repsurgery.errors import DataError, ParameterError
from repsurgery.registry import Registry

__all__ = ["SCORERS", "ToxicityScorer", "check_texts", "load_scorer", "score_visible"]


@runtime_checkable
class ToxicityScorer(Protocol):
    """A frozen function from texts to toxicity.

    Scores of different scorers are not comparable, so a figure is always reported with the ``name``, ``version`` and
    ``digest`` of its scorer.
    """

    @property
    def name(self) -> str:
        """Return the name of the scorer."""

    @property
    def version(self) -> str:
        """Return the version of the package that holds its weights."""

    @property
    def digest(self) -> str:
        """Return the SHA-256 of its weights."""

    def __call__(self, texts: Sequence[str]) -> list[float | None]:
        """Return one score in [0, 1] per text, in order; None where there is nothing to score."""


SCORERS: Registry[Callable[..., ToxicityScorer]] = Registry(
    "scorer", home="repsurgery.scorers", group="repsurgery.scorers"
)
"""Functions and classes that return a scorer when they are called without an argument. Where one argument is required,
it is the text behind the colon: "hf:<folder or hub id>"."""


def load_scorer(name: str) -> ToxicityScorer:
    """Return a scorer by name.

    Parameters
    ----------
    name : str
        "linear", "bilstm", "minilm", "detoxify", "detoxify-unbiased", "detoxify-multilingual"; "hf:<folder or hub id>",
        followed by "#<label>" for another label than the toxic one; "calibrated:<file>" for the calibration of a scorer
        that has such a name itself; "replay:<JSON Lines>" for RealToxicityPrompts; or the name of a plugin.

    Raises
    ------
    ParameterError
        There is no such name; the message lists the names.
    MissingExtraError
        A package is missing; the message says how to install it.

    Examples
    --------
    >>> from repsurgery.scorers import load_scorer
    >>> load_scorer("linear").name
    'alt-profanity-check'
    """
    kind, colon, rest = name.partition(":")
    if kind not in SCORERS or bool(colon) != bool(rest) or bool(rest) != (_argument(kind) is not None):
        raise ParameterError(f"There is no scorer {name!r}. Choose one of {', '.join(map(_form, SCORERS))}.")
    scorer = SCORERS[kind](rest) if rest else SCORERS[kind]()
    if not isinstance(scorer, ToxicityScorer):
        raise ParameterError(
            f"The scorer {name!r} is a {type(scorer).__name__}; a scorer has name, version and digest, and is called "
            "with texts."
        )
    return scorer


def _argument(name: str) -> str | None:
    """Return the name of the argument that the scorer ``name`` requires, if any."""
    parameters = inspect.signature(SCORERS[name]).parameters.values()
    return next((p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD), None)


def _form(name: str) -> str:
    argument = _argument(name)
    return name if argument is None else f"{name}:<{argument.replace('_', ' ')}>"


def check_texts(texts: Sequence[str], *, caller: str) -> list[str]:
    """Return ``texts`` as a list, or raise an error that names the first entry which is not a text."""
    if isinstance(texts, str):
        raise DataError(f"{caller} takes a list of texts and got one text. Pass [text].")
    entries = list(texts)
    for row, text in enumerate(entries):
        if not isinstance(text, str):
            raise DataError(f"{caller} got a {type(text).__name__} at position {row}. Pass texts only.")
    return entries


def score_visible(
    texts: Sequence[str], score: Callable[[list[str]], Sequence[float]], *, caller: str
) -> list[float | None]:
    """Return ``score`` of the texts with a visible character, each in its place, and None for the others."""
    texts = check_texts(texts, caller=caller)
    visible = [text for text in texts if text.strip()]
    scores = iter(score(visible) if visible else ())
    return [float(next(scores)) if text.strip() else None for text in texts]
