"""Expected bias by neighbours: squared distances within a concept minus those across, in closed form."""

from typing import Any, Literal, get_args

import numpy as np

from repsurgery.arrays import Label, check_labels, check_rows
from repsurgery.errors import DataError, LabelError, ParameterError
from repsurgery.moments import ClassMoments
from repsurgery.moments.closed_forms import expected_neighbour_bias, neighbour_bias_of_distinct_rows

__all__ = ["expected_bias_by_neighbours"]

Statistic = Literal["v", "u"]


def expected_bias_by_neighbours(
    X: Any, concept: Any, source: Label = 0, target: Label = 1, statistic: Statistic = "v"
) -> float:
    """Return EBBN = |E‖H₀ − H₀′‖² − E‖H₀ − H₁‖²|, with H₀ of the source class and H₁ of the target class.

    It equals |tr Σ₀ − tr Σ₁ − ‖μ₁ − μ₀‖²|. Equal means and covariances make it 0, but so do traces and means that
    happen to balance. It does not measure the k nearest neighbours; `neighbour_bias` does.

    Parameters
    ----------
    X : (n, d) array
    concept : (n,) labels
    source, target : two of the labels
    statistic : {"v", "u"}
        "v" averages over all pairs of source rows, including a row with itself; "u" averages over pairs of different
        rows and needs two source rows. If both classes have equal means and covariances, "v" is 0 and "u" is
        2 tr Σ₁ / (n₀ − 1).

    Examples
    --------
    >>> from repsurgery.metrics import expected_bias_by_neighbours
    >>> X, z = [[0.0], [2.0], [5.0], [7.0]], [0, 0, 1, 1]
    >>> expected_bias_by_neighbours(X, z), expected_bias_by_neighbours(X, z, statistic="u")
    (25.0, 23.0)
    """
    caller = "expected_bias_by_neighbours"
    if statistic not in get_args(Statistic):
        raise ParameterError(f"statistic is {statistic!r}; it must be one of {list(get_args(Statistic))}.")
    X = check_rows(X, caller=caller)
    labels, codes = check_labels(concept, len(X), caller=caller)
    for name, label in (("source", source), ("target", target)):
        if label not in labels:
            raise LabelError(f"{caller} has no rows of {name} {label!r}; the labels are {labels}. Choose among them.")
    rows = np.isin(codes, [labels.index(source), labels.index(target)])
    by_class = ClassMoments.of(X[rows], np.array(labels)[codes[rows]])
    if statistic == "v":
        return expected_neighbour_bias(by_class[source], by_class[target])
    if by_class[source].count < 2:
        raise DataError(f'{caller} got one row of source {source!r}; pairs of different rows need two. Use "v".')
    return neighbour_bias_of_distinct_rows(by_class[source], by_class[target])
