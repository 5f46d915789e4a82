"""`agreement`: how a scorer compares with archived scores of the same texts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from repsurgery.errors import DataError, ParameterError
from repsurgery.scorers.base import ToxicityScorer, check_texts
from repsurgery.scorers.scoring import score_texts

__all__ = ["TOXIC", "Agreement", "agreement", "compare", "paired_scores"]

TOXIC = 0.5
"""A text with an archived score of this or more is toxic."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well scores agree with archived ones.

    Attributes
    ----------
    texts : int
        The number of texts with both scores.
    auc : float
        Probability that a toxic text (archived score of .5 or more) scores above one that is not; NaN where the texts
        are all of one kind.
    spearman : float
        Rank correlation with the archived scores; NaN where either is constant.
    mean_absolute_error, root_mean_square_error : float
        The error of the score as an estimate of the archived one.
    """

    texts: int
    auc: float
    spearman: float
    mean_absolute_error: float
    root_mean_square_error: float


def agreement(scorer: ToxicityScorer, texts: Sequence[str], archived: Sequence[float | None]) -> Agreement:
    """Score ``texts`` and compare with their ``archived`` scores.

    Parameters
    ----------
    scorer : ToxicityScorer
    texts : (n,) texts
    archived : (n,) numbers in [0, 1]
        None where a text has no archived score; texts without either score are left out.
    """
    return compare(*paired_scores(scorer, texts, archived, caller="agreement"))


def paired_scores(
    scorer: ToxicityScorer, texts: Sequence[str], archived: Sequence[float | None], *, caller: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return scores (m,) and archived scores (m,) of the texts that have both."""
    texts = check_texts(texts, caller=caller)
    archived = list(archived)
    if len(texts) != len(archived):
        raise ParameterError(f"{caller} got {len(texts)} texts and {len(archived)} archived scores; give one per text.")
    for row, value in enumerate(archived):
        if value is not None and not 0 <= value <= 1:
            raise DataError(f"{caller} got the archived score {value!r} at position {row}; pass 0 to 1, or None.")
    known = [(text, value) for text, value in zip(texts, archived, strict=True) if value is not None]
    scores = score_texts(scorer, [text for text, _ in known]).scores
    pairs = [(score, value) for score, (_, value) in zip(scores, known, strict=True) if score is not None]
    if not pairs:
        raise DataError(f"{caller} found no text with both a score of {scorer.name} and an archived one.")
    scores_archived = np.array(pairs, dtype=np.float64)
    return scores_archived[:, 0], scores_archived[:, 1]


def compare(scores: NDArray[np.float64], archived: NDArray[np.float64]) -> Agreement:
    """Return the agreement of two lists of scores (n,) of the same texts."""
    toxic = archived >= TOXIC
    error = scores - archived
    varies = np.ptp(scores) > 0 and np.ptp(archived) > 0
    return Agreement(
        texts=len(scores),
        auc=float(roc_auc_score(toxic, scores)) if toxic.any() and not toxic.all() else math.nan,
        spearman=float(spearmanr(scores, archived).statistic) if varies else math.nan,
        mean_absolute_error=float(np.abs(error).mean()),
        root_mean_square_error=float(np.sqrt((error**2).mean())),
    )
