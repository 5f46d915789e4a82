"""Integer codes of labels, predictions and a two-valued concept, and the total weight of each combination."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Label, Mask, Matrix, Vector, as_rows, check_labels, check_weights
from repsurgery.errors import LabelError

__all__ = ["Codes", "cell_weights", "encode", "encode_labels", "two_groups"]

Codes = NDArray[np.intp]


class Encoded(NamedTuple):
    """The sorted classes of y, and per row: the index of its class, whether it was predicted, its group, its weight."""

    classes: list[Label]
    y: Codes
    correct: Mask
    group: Codes
    weight: Vector


def encode(y: Any, y_hat: Any, concept: Any, sample_weight: Any, *, caller: str) -> Encoded:
    """Return the checked inputs of a rate as codes."""
    classes, codes = encode_labels(y, caller=caller)
    correct = predicted_codes(classes, y_hat, len(codes), caller=caller) == codes
    group = two_groups(concept, len(codes), caller=caller)
    return Encoded(classes, codes, correct, group, weights_of(sample_weight, len(codes), caller=caller))


def encode_labels(y: Any, *, caller: str) -> tuple[list[Label], Codes]:
    """Return the sorted classes of ``y`` and the class index of each row; raise a `LabelError` without rows."""
    y = as_rows(y)
    if y is None or np.ndim(y) == 0:
        raise LabelError(f"{caller} got {y!r} for labels; give one label per row, in a list or an array.")
    n = len(y)
    if n == 0:
        raise LabelError(f"{caller} got no labels; give at least one row.")
    return check_labels(y, n, caller=caller)


def predicted_codes(classes: list[Label], y_hat: Any, n: int, *, caller: str) -> Codes:
    """Return per row the index of the predicted class among ``classes``; −1 for a class that never occurs there."""
    predicted, codes = check_labels(y_hat, n, caller=caller)
    if isinstance(predicted[0], str) != isinstance(classes[0], str):
        raise LabelError(
            f"{caller} got true labels like {classes[0]!r} and predictions like {predicted[0]!r}, which can never "
            "agree. Use one type for both."
        )
    place = {label: i for i, label in enumerate(classes)}
    return np.array([place.get(label, -1) for label in predicted], dtype=np.intp)[codes]


def two_groups(concept: Any, n: int, *, caller: str) -> Codes:
    """Return 0 or 1 per row: the first or the second of the concept's two sorted values."""
    values, codes = check_labels(concept, n, caller=caller)
    if len(values) != 2:
        shown = ", ".join(map(repr, values[:5])) + (", …" if len(values) > 5 else "")
        raise LabelError(
            f"{caller} compares two groups and got a concept with {len(values)}: {shown}. "
            "Give rows of exactly two concept values."
        )
    return codes


def weights_of(sample_weight: Any, n: int, *, caller: str) -> Vector:
    """Return the checked weights, or ones if there are none."""
    weight = check_weights(sample_weight, n, caller=caller)
    return np.ones(n) if weight is None else weight


def cell_weights(rows: Codes, columns: Codes, weight: Vector, shape: tuple[int, int]) -> Matrix:
    """Return the total weight of each pair of codes, with shape ``shape``."""
    totals: Matrix = np.bincount(rows * shape[1] + columns, weight, shape[0] * shape[1]).astype(np.float64, copy=False)
    return totals.reshape(shape)
