"""Thresholds that follow from the scores themselves, where nobody can state them beforehand."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Literal

import numpy as np

from repsurgery.errors import ParameterError

__all__ = ["Threshold", "settle"]

Threshold = float | Literal["auto"]
"""A score, or "auto" for one that `settle` chooses."""
ENOUGH = 20
"""Texts that an automatic threshold leaves in its class, if half of all texts are so many."""


def settle(source_at: Threshold, target_at: Threshold, scores: Sequence[float | None]) -> tuple[float, float]:
    """Return ``source_at`` and ``target_at`` as numbers, chosen from the ``scores`` of all texts where they are "auto".

    Scores are probabilities of the source. The fifth of the texts with the highest scores is in the class "source";
    but no text below .5, and every text from .9 on. The fifth with the lowest scores is in the class "target"; but no
    text above .5, and every text up to .1. A class that would have fewer than `ENOUGH` texts takes so many of the most
    extreme ones, as far as the other class keeps a text.

    Guarantees
    ----------
    Two different scores suffice for two classes (test_two_scores_make_two_classes).
    No text belongs to both classes (test_automatic_thresholds_separate_the_classes).
    """
    _require_threshold("source_at", source_at)
    _require_threshold("target_at", target_at)
    known = np.sort([score for score in scores if score is not None])
    # without texts there is nothing to choose from, and the caller reports that
    known = known if len(known) else np.array([0.0, 1.0])
    enough = max(1, min(ENOUGH, len(known) // 2))
    highest = min(float(np.clip(np.quantile(known, 0.8), 0.5, 0.9)), float(known[-enough]))
    if highest <= known[0]:
        # many texts share the lowest score, and the target needs them
        highest = float(min(known[known > known[0]], default=highest))
    lowest = max(float(np.clip(np.quantile(known, 0.2), 0.1, 0.5)), float(known[enough - 1]))
    source = highest if source_at == "auto" else source_at
    if target_at != "auto":
        return (max(source, float(np.nextafter(target_at, np.inf))) if source_at == "auto" else source), target_at
    # where the classes meet, that of the source keeps its texts
    return source, min(lowest, float(np.nextafter(source, -np.inf)))


def _require_threshold(name: str, value: Threshold) -> None:
    if isinstance(value, str) and value == "auto":
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ParameterError(f"{name} is {value!r}; it must be a finite number, a score of the scorer, or 'auto'.")
