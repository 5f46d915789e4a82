"""Intervals and tests by resampling rows, with the same resamples for all statistics that are compared."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Matrix, Vector, check_integer
from repsurgery.errors import DataError, LabelError, ParameterError
from repsurgery.metrics.intervals import (
    Interval,
    defined,
    paired_share_interval,
    resampled_interval,
    share_interval,
    sparse_bounds,
)
from repsurgery.metrics.means import Mean, as_mean
from repsurgery.metrics.significance import SWAPS, change_p_value, inverted_p_value, jackknife_p_value, swapped_p_value

__all__ = ["Bootstrapped", "Interval", "paired_bootstrap"]

_BLOCKS = 2000
"""With more rows than this, the jackknife leaves out blocks of rows instead of single ones."""
_CHECKS = 64
"""Resamples on which a function must equal a mean of rows to be treated as one."""
_CHUNK = 2**21
"""Weights that are in memory at once."""


@dataclass(frozen=True, slots=True)
class Bootstrapped:
    """A statistic, its difference to the reference's on the same rows, and the p-value of no difference.

    Difference and p-value are None for the reference itself. To decide whether there is a difference, use the test,
    not the interval.
    """

    estimate: Interval
    difference: Interval | None
    p_value: float | None = None

    @classmethod
    def tested(cls, estimate: Interval, difference: Interval, p_value: float, level: float) -> "Bootstrapped":
        """Return a result whose difference's interval is widened to contain 0 where the test does not reject 0.

        So an interval never shows a difference that its test does not confirm (test_intervals_and_tests_agree).
        """
        if p_value > 1 - level:
            difference = replace(difference, low=min(difference.low, 0.0), high=max(difference.high, 0.0))
        return cls(estimate, difference, p_value)


@dataclass(frozen=True, slots=True, eq=False)
class _Statistic:
    """A statistic with its value on all rows and without each block of rows; ``of`` is a `Mean` if possible."""

    name: str
    of: Callable[[Vector], float]
    value: float
    left_out: Vector


def paired_bootstrap(
    statistics: Mapping[str, Callable[[Vector], float]],
    n: int,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    reference: str | None = None,
) -> dict[str, Bootstrapped]:
    """Return intervals of statistics of the same ``n`` rows, and intervals and tests of their paired differences.

    A mean over rows is recognised, whether it is a `Mean` or a function that equals one, and its rows are used: a share
    gets an exact interval; other means get BCa intervals, which are widened to allow for rare rows where most rows are
    equal; differences are tested by swapping each row's two values (sign flips). Any other statistic gets a BCa
    interval, or an interval that allows for bias where noise inflates the statistic; its difference is tested by
    inverting the bootstrap and by the jackknife, and the larger p-value counts. The interval of a difference contains 0
    where the test does not reject it.

    Guarantees
    ----------
    Intervals of normal, skewed and rare values have their nominal coverage (test_intervals_cover_at_200_rows), and so
    have those of differences in few rows (test_intervals_of_sparse_differences_cover). Without a difference, p-values
    fall below .05 no more often than in 5 % of samples (test_p_values_keep_their_level). One changed row is never
    significant (test_one_changed_row_of_200_is_never_significant).

    Parameters
    ----------
    statistics : mapping of name to a function of row weights (n,)
        A weight is the number of times the row was drawn. A statistic may be undefined on a resample: it returns NaN or
        infinity, or raises a `LabelError`. On the original rows it must be defined. A `Mean` is the fastest.
    n : int
    resamples : int
        Also the number of random swaps, if it is larger than 9,999. If p-values are corrected for the number of tests,
        give at least 40 resamples for each test: with fewer, no test can be significant.
    level : float
        The confidence level of the intervals, between 0 and 1.
    seed : int
    reference : str, optional
        The statistic that is subtracted from all others.

    Examples
    --------
    >>> import numpy as np
    >>> from repsurgery.metrics import Mean, paired_bootstrap
    >>> x = np.arange(100.0)
    >>> results = paired_bootstrap({"a": Mean(x), "b": Mean(x + 1)}, 100, reference="a")
    >>> results["b"].difference, results["b"].p_value < 0.001
    (Interval(value=1.0, low=1.0, high=1.0, undefined=0), True)
    """
    check_integer("n, the number of rows,", n)
    check_resampling(statistics, resamples, level, reference, seed)
    blocks = _block_starts(n)
    evaluated = {name: _evaluated(name, statistic, n, blocks, seed) for name, statistic in statistics.items()}
    drawn = _drawn(evaluated, n, resamples, seed)
    base = None if reference is None else evaluated[reference]
    return {
        name: Bootstrapped(_estimate(one, drawn[name], level), None)
        if base is None or one is base
        else _compared(one, base, drawn[name], drawn[base.name], level, seed)
        for name, one in evaluated.items()
    }


def check_resampling(names: Iterable[str], resamples: int, level: float, reference: str | None, seed: int) -> None:
    """Raise a `ParameterError` for unusable names, numbers of resamples, levels, references or seeds."""
    names = list(names)
    if not names:
        raise ParameterError("There is nothing to resample; give at least one name.")
    check_integer("resamples", resamples)
    check_integer("seed", seed, least=0)
    if not 0 < level < 1:
        raise ParameterError(f"level is {level!r}; it must lie between 0 and 1, such as 0.95.")
    if reference is not None and reference not in names:
        raise ParameterError(f"reference is {reference!r}; it must be one of {names}, or None for no differences.")


def _block_starts(n: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, n, min(n, _BLOCKS), endpoint=False).astype(np.intp))


def _evaluated(
    name: str, statistic: Callable[[Vector], float], n: int, blocks: NDArray[np.intp], seed: int
) -> _Statistic:
    if isinstance(statistic, Mean) and len(statistic.values) != n:
        raise ParameterError(f"{name!r} is a mean of {len(statistic.values)} rows; n is {n}. Give a value per row.")
    value = float(statistic(np.ones(n)))
    if not np.isfinite(value):
        raise DataError(f"{name!r} is {value} on the original rows. Leave it out, or the rows that cause it.")
    if isinstance(statistic, Mean):
        return _Statistic(name, statistic, value, statistic.left_out(blocks))
    if n == 1:
        return _Statistic(name, Mean(np.array([value])), value, np.full(1, np.nan))
    left_out = np.empty(len(blocks))
    for i, (start, stop) in enumerate(zip(blocks, [*blocks[1:], n], strict=True)):
        weights = np.ones(n)
        weights[start:stop] = 0.0
        left_out[i] = _value_or_nan(statistic, weights)
    if len(blocks) == n:
        checks = next(_weights(n, _CHECKS, seed))
        drawn = np.array([_value_or_nan(statistic, row) for row in checks])
        statistic = as_mean(value, left_out, checks, drawn) or statistic
    return _Statistic(name, statistic, value, left_out)


def _drawn(statistics: Mapping[str, _Statistic], n: int, resamples: int, seed: int) -> dict[str, Vector]:
    parts: dict[str, list[Vector]] = {name: [] for name in statistics}
    for weights in _weights(n, resamples, seed):
        for name, one in statistics.items():
            if isinstance(one.of, Mean):
                parts[name].append(one.of.drawn(weights))
            else:
                parts[name].append(np.array([_value_or_nan(one.of, row) for row in weights]))
    return {name: np.concatenate(part) for name, part in parts.items()}


def _weights(n: int, resamples: int, seed: int) -> Iterator[Matrix]:
    rng = np.random.default_rng(seed)
    step = max(1, _CHUNK // n)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def _estimate(one: _Statistic, drawn: Vector, level: float) -> Interval:
    if isinstance(one.of, Mean) and one.of.is_share:
        hits, known = (round(float(part.sum())) for part in (one.of.weights * one.of.values, one.of.weights))
        return share_interval(hits, known, level)
    interval = resampled_interval(one.name, one.value, drawn, one.left_out, level)[0]
    if isinstance(one.of, Mean):
        rows = one.of.rows[one.of.weights > 0]
        return _hull(interval, sparse_bounds(rows, level, scale=float(np.abs(rows).max()), either_side=False))
    return interval


def _hull(interval: Interval, bounds: tuple[float, float] | None) -> Interval:
    if bounds is None:
        return interval
    return replace(interval, low=min(interval.low, bounds[0]), high=max(interval.high, bounds[1]))


def _compared(
    one: _Statistic, base: _Statistic, drawn: Vector, reference: Vector, level: float, seed: int
) -> Bootstrapped:
    estimate = _estimate(one, drawn, level)
    a, b = one.of, base.of
    if isinstance(a, Mean) and isinstance(b, Mean) and a.is_share and b.is_share and (a.weights == b.weights).all():
        gained, lost = (round(float(np.maximum(d, 0.0).sum())) for d in (a.values - b.values, b.values - a.values))
        known = round(float(a.weights.sum()))
        difference = paired_share_interval(gained, lost, known, level)
        return Bootstrapped.tested(estimate, difference, change_p_value(gained, lost), level)
    value, change = one.value - base.value, drawn - reference
    # resamples that differ from the value, or from zero, by rounding alone are ties
    rounding = 1e-12 * (abs(one.value) + abs(base.value))
    change = np.where(np.abs(change) <= rounding, 0.0, np.where(np.abs(change - value) <= rounding, value, change))
    left_out = one.left_out - base.left_out
    difference, correction, shifts = resampled_interval(one.name, value, change, left_out, level)
    if isinstance(a, Mean) and isinstance(b, Mean):
        rows = (a.rows - b.rows)[(a.weights > 0) | (b.weights > 0)]
        scale = float(np.abs(a.rows).max() + np.abs(b.rows).max())
        difference = _hull(difference, sparse_bounds(rows, level, scale=scale, either_side=True))
        p_value = swapped_p_value(a, b, seed, swaps=max(SWAPS, len(drawn)))
        return Bootstrapped.tested(estimate, difference, p_value, level)
    p_value = inverted_p_value(defined(one.name, change), correction, shifts)
    return Bootstrapped.tested(estimate, difference, max(p_value, jackknife_p_value(value, left_out)), level)


def _value_or_nan(statistic: Callable[[Vector], float], weights: Vector) -> float:
    try:
        return float(statistic(weights))
    except LabelError:
        return float("nan")
