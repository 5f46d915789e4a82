"""Tables whose labels are numbers, such as ratings: erased as they are, or binned into classes by their quantiles."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from repsurgery.arrays import Vector
from repsurgery.concepts import quantile_bins
from repsurgery.datasets import LabelledTexts, hold_out
from repsurgery.errors import LabelError
from repsurgery.workflows.held_out import FEWEST_TEXTS

__all__ = ["as_numbers", "binned", "require_classes", "split_ratings"]


def as_numbers(labels: Sequence[str]) -> Vector:
    """Return labels as finite numbers; one that is none raises a `LabelError`."""
    numbers = np.array([_number(label) for label in labels])
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise LabelError(
            f"The label {labels[wrong[0]]!r} is not a finite number, which --bins and --continuous need. Leave these "
            "options out, or name the column of numbers with --label-column."
        )
    return numbers


def _number(label: str) -> float:
    try:
        return float(label)
    except ValueError:
        return np.nan


def require_classes(texts: LabelledTexts) -> None:
    """Raise a `LabelError` that names the remedies where labels are numbers that are not whole."""
    numbers = np.array([_number(label) for label in texts.counts])
    if np.isfinite(numbers).all() and (numbers != np.round(numbers)).any():
        example = next(label for label in texts.counts if _number(label) != np.round(_number(label)))
        raise LabelError(
            f"The labels are numbers, for example {example}, and {len(texts.counts)} of them are different; a class "
            "needs a label. Add --bins 4 to bin them by quantiles, or erase them as they are with --method leace "
            "--continuous."
        )


def binned(texts: LabelledTexts, bins: int) -> LabelledTexts:
    """Return the texts with their quantile bins as labels; see `quantile_bins`."""
    return replace(texts, labels=tuple(quantile_bins(as_numbers(texts.labels), bins).tolist()))


def split_ratings(texts: LabelledTexts, *, share: float, seed: int) -> tuple[LabelledTexts, LabelledTexts, str]:
    """Return the texts to fit on, the held-out ones, and why there are none of these; see `held_out.split`."""
    if share == 0:
        return texts, texts.where([]), "The map is fitted on all texts, and none were held out to measure it on."
    _, apart = hold_out(replace(texts, labels=("all",) * len(texts)), share=share, seed=seed)
    away = set(apart.texts)
    held = [text in away for text in texts.texts]
    if len(away) < FEWEST_TEXTS:
        few = f"The map is fitted on all texts, because a share of {share:g} of them is fewer than {FEWEST_TEXTS}."
        return texts, texts.where([]), few
    return texts.where([not one for one in held]), texts.where(held), ""
