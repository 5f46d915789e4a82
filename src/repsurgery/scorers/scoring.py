"""`score_texts`: score many texts, and continue where the scorer fails on some of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from repsurgery.arrays import check_integer
from repsurgery.errors import DataError, MissingExtraError
from repsurgery.scorers.base import ToxicityScorer, check_texts

__all__ = ["Scored", "score_texts"]


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of texts, and how many texts could not be scored.

    Attributes
    ----------
    scores : tuple of float or None, one per text
        None where there is nothing to score, or the scorer failed.
    failures : int
        The number of texts on which the scorer failed.
    message : str or None
        The message of the first failure.
    """

    scores: tuple[float | None, ...]
    failures: int
    message: str | None


def score_texts(scorer: ToxicityScorer, texts: Sequence[str], *, batch_size: int = 256) -> Scored:
    """Score ``texts`` in batches; where one fails, score its texts one by one and count those that fail alone.

    Raises
    ------
    DataError
        The scorer returns a number of scores that differs from the number of texts, or a score outside [0, 1].
    MissingExtraError
        A package is missing, so that no text can be scored.
    """
    batch_size = check_integer("batch_size", batch_size)
    texts = check_texts(texts, caller="score_texts")
    scores: list[float | None] = []
    messages: list[str] = []
    for start in range(0, len(texts), batch_size):
        batch = texts[start : start + batch_size]
        batch_scores, problem = _attempt(scorer, batch)
        if problem is None:
            scores += batch_scores
            continue
        for text in batch:
            score, problem = _attempt(scorer, [text])
            scores += score
            messages += [] if problem is None else [problem]
    return Scored(tuple(scores), len(messages), messages[0] if messages else None)


def _attempt(scorer: ToxicityScorer, texts: list[str]) -> tuple[list[float | None], str | None]:
    """Return the scores and None; where the scorer fails, None for each text and its message."""
    try:
        scores = scorer(texts)
    except MissingExtraError:
        raise
    # a scorer may be foreign code: every exception counts as a failure on these texts
    except Exception as error:
        return [None] * len(texts), f"{scorer.name}: {type(error).__name__}: {error}"
    return _checked(scorer.name, texts, scores), None


def _checked(name: str, texts: list[str], answer: Any) -> list[float | None]:
    scores = list(answer)
    if len(scores) != len(texts):
        raise DataError(f"{name} gave {len(scores)} scores for {len(texts)} texts; a scorer gives one per text.")
    for text, score in zip(texts, scores, strict=True):
        # NaN fails the comparison too
        if score is not None and not (isinstance(score, Real) and 0 <= float(score) <= 1):
            raise DataError(f"{name} gave the score {score!r} for {text[:40]!r}; a score lies in [0, 1], or is None.")
    return [None if score is None else float(score) for score in scores]
