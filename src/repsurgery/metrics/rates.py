"""Accuracy of predictions, and its differences between two groups."""

from typing import Any

import numpy as np

from repsurgery.arrays import Label, Matrix, Vector
from repsurgery.errors import LabelError, MissingExtraError
from repsurgery.metrics.cells import (
    Encoded,
    cell_weights,
    encode,
    encode_labels,
    predicted_codes,
    two_groups,
    weights_of,
)

__all__ = [
    "accuracy",
    "demographic_parity_difference",
    "equalized_odds_difference",
    "tpr_gap",
    "tpr_gap_noise",
    "tpr_gap_rms",
    "tpr_gap_rms_predicted",
]


def accuracy(y: Any, y_hat: Any, *, sample_weight: Any = None) -> float:
    """Return the share of rows that are predicted correctly.

    Parameters
    ----------
    y, y_hat : (n,) labels
    sample_weight : (n,) numbers, optional
        A weight of 2 counts a row twice, 0 not at all.

    Examples
    --------
    >>> from repsurgery.metrics import accuracy
    >>> accuracy(["nurse", "nurse", "judge"], ["nurse", "judge", "judge"], sample_weight=[2, 1, 1])
    0.75
    """
    classes, codes = encode_labels(y, caller="accuracy")
    correct = predicted_codes(classes, y_hat, len(codes), caller="accuracy") == codes
    return float(np.average(correct, weights=weights_of(sample_weight, len(codes), caller="accuracy")))


def tpr_gap(y: Any, y_hat: Any, concept: Any, *, sample_weight: Any = None) -> dict[Label, float | None]:
    """Return for each class P(ŷ = y | y, second group) − P(ŷ = y | y, first group).

    Parameters
    ----------
    y, y_hat : (n,) labels
    concept : (n,) labels of exactly two values
        The first group is the one that sorts first.
    sample_weight : (n,) numbers, optional
        As in `accuracy`.

    Returns
    -------
    {class of y: gap}, None where a group has no row (or no weight) of that class

    Examples
    --------
    >>> from repsurgery.metrics import tpr_gap
    >>> tpr_gap(["nurse"] * 4 + ["judge"], ["nurse", "nurse", "nurse", "judge", "judge"], ["f", "f", "m", "m", "m"])
    {'judge': None, 'nurse': -0.5}
    """
    rows = encode(y, y_hat, concept, sample_weight, caller="tpr_gap")
    gaps = gaps_of(*_cells(rows))
    return {label: None if np.isnan(gap) else float(gap) for label, gap in zip(rows.classes, gaps, strict=True)}


def tpr_gap_rms(y: Any, y_hat: Any, concept: Any, *, sample_weight: Any = None) -> float:
    """Return the root mean square of `tpr_gap` over all classes of ``y`` that have both groups.

    A class that is never predicted counts with a gap of 0. Parameters are those of `tpr_gap`.

    Examples
    --------
    >>> from repsurgery.metrics import tpr_gap_rms
    >>> tpr_gap_rms([0, 0, 1, 1], [0, 1, 1, 1], ["f", "m", "f", "m"])
    0.7071067811865476
    """
    rows = encode(y, y_hat, concept, sample_weight, caller="tpr_gap_rms")
    return _rms(gaps_of(*_cells(rows)), "tpr_gap_rms")


def tpr_gap_noise(y: Any, y_hat: Any, concept: Any) -> float:
    """Return the `tpr_gap_rms` that sampling alone would show if both groups of every class had the same TPR.

    This is the root of the mean over classes of p (1 − p) (1/n₀ + 1/n₁), where p is the TPR of the class over both
    groups and n₀, n₁ are their rows; with few rows per class and group it is far from 0. Rows are assumed independent:
    where both groups have the same texts except for the concept, as in WinoBias, the true noise is smaller.

    Examples
    --------
    >>> from repsurgery.metrics import tpr_gap_noise
    >>> tpr_gap_noise([0] * 8, [0, 1] * 4, ["f", "m"] * 4)
    0.3535533905932738
    """
    rows = encode(y, y_hat, concept, None, caller="tpr_gap_noise")
    hits, totals = _cells(rows)
    known = totals.min(axis=1) > 0
    _require_some(int(known.sum()), "tpr_gap_noise")
    p = hits[known].sum(axis=1) / totals[known].sum(axis=1)
    return float(np.sqrt(np.mean(p * (1 - p) * (1 / totals[known]).sum(axis=1))))


def tpr_gap_rms_predicted(
    y: Any, y_hat: Any, concept: Any, *, reference: Any = None, sample_weight: Any = None
) -> float:
    """Return the root mean square of `tpr_gap` over the classes predicted correctly at least once.

    A class that is never predicted has no gap, so that leaving it out raises the mean. The code released with Singh et
    al. (2024) does so, and lets the predictions after steering determine the classes before and after.

    Parameters
    ----------
    y, y_hat, concept, sample_weight
        As in `tpr_gap`.
    reference : (n,) labels, optional
        The predictions that determine the classes, ``y_hat`` by default. Use the same for all compared methods.

    Examples
    --------
    >>> from repsurgery.metrics import tpr_gap_rms_predicted
    >>> tpr_gap_rms_predicted([0, 0, 1, 1], [0, 1, 0, 0], ["f", "m", "f", "m"])
    1.0
    """
    caller = "tpr_gap_rms_predicted"
    rows = encode(y, y_hat, concept, sample_weight, caller=caller)
    deciding = rows
    if reference is not None:
        hit = predicted_codes(rows.classes, reference, len(rows.y), caller=caller) == rows.y
        deciding = rows._replace(correct=hit)
    ever = _cells(deciding)[0].sum(axis=1) > 0
    return _rms(gaps_of(*_cells(rows))[ever], caller)


def demographic_parity_difference(y_hat: Any, concept: Any, *, sample_weight: Any = None) -> float:
    """Return the largest difference over predicted classes ŷ of P(ŷ | group) between the two groups.

    For two classes fairlearn's measure of that name is computed; for more classes the result is the largest of
    fairlearn's values over the classes, each against the rest.

    Parameters
    ----------
    y_hat, concept : (n,) labels
    sample_weight : (n,) numbers, optional

    Examples
    --------
    >>> from repsurgery.metrics import demographic_parity_difference
    >>> demographic_parity_difference(["a", "b", "c", "a"], ["f", "f", "m", "m"])
    0.5
    """
    caller = "demographic_parity_difference"
    classes, codes = encode_labels(y_hat, caller=caller)
    group = two_groups(concept, len(codes), caller=caller)
    weight = weights_of(sample_weight, len(codes), caller=caller)
    totals = np.bincount(group, weight, 2)
    if not totals.all():
        raise LabelError(f"{caller} got a group without any weight; give rows of both groups a positive weight.")
    if len(classes) == 2:
        parity = _fairlearn("demographic_parity_difference")
        return float(parity(codes, codes, sensitive_features=group, sample_weight=weight))
    rates = cell_weights(group, codes, weight, (2, len(classes))) / totals[:, None]
    return float(np.abs(rates[1] - rates[0]).max())


def equalized_odds_difference(y: Any, y_hat: Any, concept: Any, *, sample_weight: Any = None) -> float:
    """Return the largest difference over (true class y, predicted class ŷ) of P(ŷ | y, group) between the two groups.

    For two classes fairlearn's measure of that name is computed (the larger of the differences in true and in false
    positive rates). Classes of ``y`` that lack a group are left out.

    Parameters
    ----------
    y, y_hat, concept, sample_weight
        As in `tpr_gap`.

    Examples
    --------
    >>> from repsurgery.metrics import equalized_odds_difference
    >>> equalized_odds_difference([0, 0, 1, 1, 2], [0, 1, 1, 1, 2], ["f", "m", "f", "m", "f"])
    1.0
    """
    caller = "equalized_odds_difference"
    rows = encode(y, y_hat, concept, sample_weight, caller=caller)
    _, totals = _cells(rows)
    both = totals.min(axis=1) > 0
    _require_some(int(both.sum()), caller)
    predicted, codes = encode_labels(y_hat, caller=caller)
    names = sorted(set(rows.classes) | set(predicted))
    if len(names) <= 2:
        comparable = both[rows.y]
        truth = np.array([names.index(label) for label in rows.classes])[rows.y][comparable]
        guess = np.array([names.index(label) for label in predicted])[codes][comparable]
        odds, group, weight = _fairlearn("equalized_odds_difference"), rows.group[comparable], rows.weight[comparable]
        return float(odds(truth, guess, sensitive_features=group, sample_weight=weight))
    cell = rows.y * 2 + rows.group
    rates = cell_weights(cell, codes, rows.weight, (2 * len(rows.classes), len(predicted)))
    rates = rates.reshape(-1, 2, len(predicted))[both] / totals[both, :, None]
    return float(np.abs(rates[:, 1] - rates[:, 0]).max())


def gaps_of(hits: Matrix, totals: Matrix) -> Vector:
    """Return TPR of the second group − TPR of the first, from (…, K, 2) weights; NaN if a group has no weight."""
    rates = np.divide(hits, totals, out=np.full(hits.shape, np.nan), where=totals > 0)
    gaps: Vector = rates[..., 1] - rates[..., 0]
    return gaps


def _cells(rows: Encoded) -> tuple[Matrix, Matrix]:
    """Return the correctly predicted weight and the total weight, each by class and group, (K, 2)."""
    shape = (len(rows.classes), 2)
    hits = cell_weights(rows.y, rows.group, rows.weight * rows.correct, shape)
    return hits, cell_weights(rows.y, rows.group, rows.weight, shape)


def _rms(gaps: Vector, caller: str) -> float:
    known = gaps[~np.isnan(gaps)]
    _require_some(len(known), caller)
    return float(np.sqrt(np.square(known).mean()))


def _require_some(classes: int, caller: str) -> None:
    if classes == 0:
        raise LabelError(
            f"{caller} found no class with rows of both groups; give rows of both groups in at least one class."
        )


def _fairlearn(name: str) -> Any:
    try:
        from fairlearn import metrics
    except ImportError as error:
        raise MissingExtraError(f"{name} of two classes needs fairlearn: pip install 'repsurgery[fairness]'") from error
    return getattr(metrics, name)
