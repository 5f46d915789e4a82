"""Intervals by resampling rows, the same rows for everything that is compared."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from repsurgery.arrays import Vector
from repsurgery.errors import DataError, LabelError, ParameterError

__all__ = ["Bootstrapped", "Interval", "intervals_of", "paired_bootstrap"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with the spread of its resamples around it.

    The bounds are percentiles of the resamples, moved so that the mean of the resamples is the value. A statistic that
    noise inflates, such as the root mean square of noisy gaps, is inflated once in the sample and twice in a resample;
    unmoved, its interval could lie above its value. What the sample's own noise added stays in value and interval.

    Attributes
    ----------
    value : float
        On the rows as they are.
    low, high : float
    undefined : int
        Resamples in which it had no value; the interval leaves them out.
    """

    value: float
    low: float
    high: float
    undefined: int


@dataclass(frozen=True, slots=True)
class Bootstrapped:
    """A statistic, and its difference to the reference's on the same resamples; None for the reference itself."""

    estimate: Interval
    difference: Interval | None


def paired_bootstrap(
    statistics: Mapping[str, Callable[[Vector], float]],
    n: int,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    reference: str | None = None,
) -> dict[str, Bootstrapped]:
    """Return intervals of statistics of the same ``n`` rows, and of their paired differences.

    Parameters
    ----------
    statistics : mapping of name to a function of row weights (n,)
        A weight says how often the row was drawn. A resample is undefined for a statistic that returns NaN or infinity,
        or raises a `LabelError`, on it; on the rows as they are it must have a value.
    n : int
    resamples : int
    level : float
        The share of resamples inside an interval, between 0 and 1.
    seed : int
    reference : str, optional
        The statistic that is subtracted from all others.

    Examples
    --------
    >>> import numpy as np
    >>> from repsurgery.metrics import paired_bootstrap
    >>> x = np.arange(100.0)
    >>> mean = lambda w: w @ x / w.sum()
    >>> found = paired_bootstrap({"a": mean, "b": lambda w: mean(w) + 1}, 100, reference="a")
    >>> found["b"].difference
    Interval(value=1.0, low=1.0, high=1.0, undefined=0)
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ParameterError(f"n is {n!r}; it must be the number of rows, at least 1.")
    check_resampling(statistics, resamples, level, reference, seed)
    rng = np.random.default_rng(seed)
    values = {name: _defined(name, statistic(np.ones(n))) for name, statistic in statistics.items()}
    drawn = np.empty((len(statistics), resamples))
    for i in range(resamples):
        weights = np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)
        drawn[:, i] = [_value_or_nan(statistic, weights) for statistic in statistics.values()]
    return intervals_of(values, dict(zip(statistics, drawn, strict=True)), level, reference)


def intervals_of(
    values: Mapping[str, float], drawn: Mapping[str, Vector], level: float, reference: str | None
) -> dict[str, Bootstrapped]:
    """Return the intervals of values whose resamples are ``drawn``, (resamples,) each, NaN where undefined."""
    found = {}
    for name, value in values.items():
        difference = None
        if reference is not None and name != reference:
            difference = _interval(value - values[reference], drawn[name] - drawn[reference], level, name)
        found[name] = Bootstrapped(_interval(value, drawn[name], level, name), difference)
    return found


def check_resampling(names: Iterable[str], resamples: int, level: float, reference: str | None, seed: int) -> None:
    """Raise where there is nothing to resample, or no sensible number of times."""
    names = list(names)
    if not names:
        raise ParameterError("There is nothing to resample; give at least one name.")
    if isinstance(resamples, bool) or not isinstance(resamples, int | np.integer) or resamples < 1:
        raise ParameterError(f"resamples is {resamples!r}; it must be a whole number of at least 1.")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ParameterError(f"seed is {seed!r}; it must be a whole number of at least 0.")
    if not 0 < level < 1:
        raise ParameterError(f"level is {level!r}; it must lie between 0 and 1, such as 0.95.")
    if reference is not None and reference not in names:
        raise ParameterError(f"reference is {reference!r}; it must be one of {names}, or None for no differences.")


def _interval(value: float, drawn: Vector, level: float, name: str) -> Interval:
    known = drawn[np.isfinite(drawn)]
    if len(known) == 0:
        raise DataError(f"{name!r} had no value in any of {len(drawn)} resamples. Give more rows, or leave it out.")
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2]) + (value - known.mean())
    return Interval(float(value), float(low), float(high), len(drawn) - len(known))


def _defined(name: str, value: float) -> float:
    if not np.isfinite(value):
        raise DataError(f"{name!r} is {value} on the rows as they are. Leave it out, or the rows that cause it.")
    return float(value)


def _value_or_nan(statistic: Callable[[Vector], float], weights: Vector) -> float:
    try:
        return float(statistic(weights))
    except LabelError:
        return float("nan")
