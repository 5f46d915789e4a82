"""What moments of rows are, by formulas that share nothing with the package: in two passes, and in exact numbers."""

import mpmath
import numpy as np

BITS = 400
"""Enough for the sums of products of numbers between 1e-12 and 1e8 with 53 bits each to be exact."""


def two_pass(X, w=None):
    """Return the mean (d,) and the scatter (d, d) of rows (n, d) by two passes in the longest float of NumPy."""
    X = np.asarray(X, dtype=np.longdouble)
    w = np.ones(len(X), dtype=np.longdouble) if w is None else np.asarray(w, dtype=np.longdouble)
    mean, C = X[0], X - X[0]  # about one of the rows, so that a constant column has a scatter of exactly zero
    for _ in range(2):  # the second shift is what rounding took from the first
        shift = w @ C / w.sum()
        mean, C = mean + shift, C - shift
    return mean.astype(np.float64), ((w[:, None] * C).T @ C).astype(np.float64)


def exact(X, w=None):
    """Return the same from numbers of `BITS` bits."""
    n, d = np.shape(X)
    with mpmath.workprec(BITS):
        rows = [[mpmath.mpf(float(value)) for value in row] for row in X]
        weights = [mpmath.mpf(1)] * n if w is None else [mpmath.mpf(float(value)) for value in w]
        total = mpmath.fsum(weights)
        mean = [mpmath.fdot(weights, [row[j] for row in rows]) / total for j in range(d)]
        C = [[row[j] - mean[j] for row in rows] for j in range(d)]
        weighted = [[a * b for a, b in zip(weights, column, strict=True)] for column in C]
        scatter = np.array([[float(mpmath.fdot(weighted[j], C[k])) for k in range(d)] for j in range(d)])
        return np.array([float(value) for value in mean]), scatter
