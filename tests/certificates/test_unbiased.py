"""Gaps of a population, estimated from samples of it: right on average, whatever the rows are like."""

import numpy as np
import pytest

from repsurgery.certificates.unbiased import Sample, squared_columns, squared_gaps
from tests.strategies import structured

KINDS = ("sparse", "counts", "same", "tied", "zero", "normal")
DRAWS = 400


def population(seed, shift, scale):
    """Return many rows, from which samples are drawn with replacement: they are the population."""
    return structured(seed, 5000, KINDS) * scale + shift


def weights_and_groups(rng, n, kind):
    """Return weights (n,) and groups (n,) or None; in a group all rows are equal, so that it is worth one row."""
    if kind == "weighted":
        return rng.choice([0.5, 1.0, 3.0], size=n), None, rng.permutation(n)
    if kind == "grouped":
        groups = np.arange(n) // 3
        return None, groups, groups
    return None, None, rng.permutation(n)


@pytest.mark.parametrize("kind", ["plain", "weighted", "grouped"])
@pytest.mark.parametrize("n", [5, 40], ids=["fewer rows than columns", "more"])
def test_squared_gaps_are_right_on_average(kind, n):
    A, B = population(0, 0.0, 1.0), population(1, 0.3, 1.2)
    covariances = [np.cov(X.T, bias=True) for X in (A, B)]
    delta = A.mean(axis=0) - B.mean(axis=0)
    truth = {
        "means": delta @ delta,
        "covariances": np.square(covariances[0] - covariances[1]).sum(),
        "neighbours": (np.trace(covariances[0]) - np.trace(covariances[1]) - delta @ delta) ** 2,
        "scale": np.square(covariances[1]).sum(),
    }
    rng = np.random.default_rng(2)
    found = {name: [] for name in truth}
    for _ in range(DRAWS):
        samples = []
        for X in (A, B):
            w, groups, place = weights_and_groups(rng, 3 * n, kind)
            rows = X[rng.integers(len(X), size=3 * n)][place]
            samples.append(Sample.of(rows, w, groups))
        gaps = squared_gaps(*samples)
        for name, values in found.items():
            values.append(getattr(gaps, name))
    for name in ("means", "covariances"):
        values = np.array(found[name])
        error = values.std() / np.sqrt(DRAWS)
        # what is left of the bias is of second order: a share of 1/n of the noise that was taken off
        assert values.mean() == pytest.approx(truth[name], abs=4 * error + truth["scale"] / (2 * n)), name


def test_without_the_correction_the_gap_of_equal_populations_is_not_zero():
    X = population(0, 0.0, 1.0)
    rng = np.random.default_rng(0)
    plain, corrected = [], []
    for _ in range(DRAWS):
        a, b = (Sample.of(X[rng.integers(len(X), size=30)], None, None) for _ in range(2))
        plain.append(np.square(a.mean - b.mean).sum())
        corrected.append(squared_gaps(a, b).means)
    error = np.std(corrected) / np.sqrt(DRAWS)
    assert np.mean(plain) > 10 * error
    assert abs(np.mean(corrected)) < 4 * error


def test_squared_covariances_with_a_column_are_right_on_average():
    X = population(0, 0.0, 1.0)
    z = (X[:, 0] + 0.5 * X[:, 1])[:, None]
    truth = np.square((X - X.mean(axis=0)).T @ (z - z.mean()) / len(X)).sum()
    rng = np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        i = rng.integers(len(X), size=60)
        found.append(squared_columns(Sample.of(X[i], None, None), z[i] - z[i].mean())[0])
    assert np.mean(found) == pytest.approx(truth, abs=4 * np.std(found) / np.sqrt(DRAWS) + truth / 30)
