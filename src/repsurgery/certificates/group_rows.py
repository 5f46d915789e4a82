"""Scores and rows summed over groups of rows that are not independent, so that the tests can treat groups as rows.

The mean of n rows in G groups equals the mean of the G values x̄ + (G / n) Σ (x − x̄), summed over each group. These are
independent where the groups are, and their spread gives the standard error of the mean, whatever the correlation
within groups (a cluster-robust variance). Groups of one row each leave every value as it is.
"""

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Matrix, Vector

__all__ = ["centred_by_group", "group_gram", "scores_by_group", "squares_by_group", "sums_by_group"]

Codes = NDArray[np.intp]
"""The number of the group of each row (n,)."""


def sums_by_group(values: NDArray[np.float64], codes: Codes) -> NDArray[np.float64]:
    """Return the sum of ``values`` (n, …) over each group, in the order of the groups' numbers."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    sums: NDArray[np.float64] = np.add.reduceat(values[order], starts, axis=0)
    return sums


def scores_by_group(scores: Vector, codes: Codes) -> Vector:
    """Return one score per group; their mean is that of ``scores`` (n,)."""
    mean = float(scores.mean())
    return mean + centred_by_group(scores - mean, codes)


def centred_by_group(values: NDArray[np.float64], codes: Codes) -> NDArray[np.float64]:
    """Return (G / n) Σ x of each group, for values (n, …) with mean zero."""
    sums = sums_by_group(values, codes)
    return sums * (len(sums) / len(values))


def squares_by_group(X: Matrix, codes: Codes, norm: float) -> Vector:
    """Return ‖(G / n) Σ (x xᵀ − S)‖²_F of each group, for centred rows (n, d) and ``norm`` = ‖S‖²_F."""
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    squares = [np.square(X[rows] @ X[rows].T).sum() - len(rows) ** 2 * norm for rows in parts]
    clipped: Vector = np.maximum(np.array(squares), 0.0)
    return clipped * (len(parts) / len(X)) ** 2


def group_gram(gram: Matrix, codes: Codes) -> Matrix:
    """Return the Gram matrix of the sums over groups, from that of the rows."""
    return sums_by_group(sums_by_group(gram, codes).T, codes)
