"""Tests of a gap: a p-value, the largest gap that does not contradict the claim, and the power of the test.

Every statistic is a mean over rows, compared with its standard error. Two precautions keep the level where rows are
few, sparse, skewed or heavy-tailed. The degrees of freedom are those of the estimated variance, 2 (E s²)² / Var s²,
with the kurtosis of the rows (Satterthwaite), so that an estimate that depends on a few rows contradicts nothing. And
directions are learned on one half of the rows and tested on the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, stats

from repsurgery.arrays import Vector

__all__ = ["Evidence", "Noise", "contrast", "either", "norm_of"]

SMALLEST_P = 1e-16
"""The smallest p-value that is reported."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One test of one gap.

    Attributes
    ----------
    where : str
        "along the concept" or "in norm".
    found, allowed : float
        The gap in these rows, and the largest gap that would not have contradicted the claim.
    p_value : float
        How often a map that keeps its claim shows so large a gap.
    power : float
        How often a map that leaves the stated share of the gap would be contradicted.
    """

    where: str
    found: float
    allowed: float
    p_value: float
    power: float


@dataclass(frozen=True, slots=True)
class Noise:
    """The sampling error of one class's mean, including that of the fitting sample.

    Attributes
    ----------
    square, variance : float
        The squared standard error, and the variance of that estimate.
    reach : float
        How far one more row, as extreme as any observed one, moves the mean: the range term of a Bernstein bound.
    """

    square: float
    variance: float
    reach: float

    @classmethod
    def of(cls, scores: Vector, fitting_rows: float, *, largest: float) -> "Noise":
        """Return the noise of the mean of ``scores`` (n,), assuming that no score is further out than ``largest``."""
        n = len(scores)
        squares = np.square(scores - scores.mean())
        per_row, s2 = 1 / n + 1 / max(fitting_rows, 1), float(squares.sum()) / (n - 1)
        # at least the normal distribution's Var s² = 2 s⁴ / (n − 1)
        spread = max(float(squares.var()) / n, 2 * s2**2 / (n - 1))
        return cls(per_row * s2, per_row**2 * spread, per_row * largest)

    @classmethod
    def of_squares(cls, squares: Vector, fitting_rows: float, *, largest: float) -> "Noise":
        """Return the same for a mean of vectors, from their squared distances (n,) to it."""
        n = len(squares)
        per_row = 1 / n + 1 / max(fitting_rows, 1)
        mean = float(squares.sum()) / (n - 1)
        return cls(per_row * mean, per_row**2 * float(squares.var()) / n, per_row * largest)


def contrast(gap: float, *, claimed: float, effect: float, noise: Sequence[Noise], level: float) -> Evidence:
    """Test one signed difference of means against |difference| ≤ ``claimed``, with power for a gap of ``effect``.

    A claimed gap as wide as the effect leaves no power, so that it supports nothing.
    """
    error, df, reach = _total(noise)
    if not error > 0:
        return Evidence("along the concept", abs(gap), np.inf, 1.0, 0.0)

    def limit(p: float) -> float:
        return claimed + error * float(stats.t.isf(p / 2, df)) + reach * float(np.log(2 / p))

    power = float(stats.t.sf((limit(level) - effect) / error, df)) if effect > 0 else 0.0
    return Evidence("along the concept", abs(gap), limit(level), _p_value(limit, abs(gap)), power)


def norm_of(
    gap: float, *, claimed: float, effect: float, noise: Sequence[Noise], directions: float, level: float
) -> Evidence:
    """Test the norm of a difference of means whose noise spreads over about ``directions`` directions."""
    error, df, reach = _total(noise)
    if not error > 0:
        return Evidence("in norm", gap, np.inf, 1.0, 0.0)
    k = max(directions, 1.0)

    def limit(p: float) -> float:
        return claimed + error * float(np.sqrt(stats.f.isf(p, k, df))) + reach * float(np.log(2 / p))

    # ‖δ + noise‖² has mean δ² + 1 and variance (2 + 4δ²) / k in units of the noise
    delta, needed = effect / error, limit(level) / error
    power = float(stats.norm.sf((needed**2 - delta**2 - 1) / np.sqrt((2 + 4 * delta**2) / k))) if effect > 0 else 0.0
    return Evidence("in norm", gap, limit(level), _p_value(limit, gap), power)


def _total(noise: Sequence[Noise]) -> tuple[float, float, float]:
    square, variance = sum(n.square for n in noise), sum(n.variance for n in noise)
    df = 2 * square**2 / variance if variance > 0 else np.inf
    return float(np.sqrt(square)), df, max(n.reach for n in noise)


def _p_value(limit: Callable[[float], float], gap: float) -> float:
    """Return the p at which ``limit`` equals the gap; limits fall as p grows."""
    if gap <= limit(1.0):
        return 1.0
    if gap >= limit(SMALLEST_P):
        return SMALLEST_P
    root = optimize.brentq(lambda log: limit(float(np.exp(log))) - gap, np.log(SMALLEST_P), 0.0)
    return float(np.exp(root))


def either(tests: Sequence[Evidence]) -> Evidence:
    """Return the strongest of several tests, its p-value multiplied by their number (Bonferroni)."""
    strongest = min(tests, key=lambda e: e.p_value)
    p_value = min(1.0, strongest.p_value * len(tests))
    return replace(strongest, p_value=p_value, power=max(e.power for e in tests))
