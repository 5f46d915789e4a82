"""p-values of paired differences: by swapping rows, by inverting a bootstrap, by the jackknife; Holm's adjustment."""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.stats import binomtest, t

from repsurgery.arrays import Matrix, Vector
from repsurgery.errors import ParameterError
from repsurgery.metrics.intervals import Correction
from repsurgery.metrics.means import Mean

__all__ = [
    "change_p_value",
    "enough_resamples",
    "holm",
    "inverted_p_value",
    "jackknife_p_value",
    "swapped_p_value",
    "tail_p_value",
]

SWAPS = 9999
"""The fewest random swaps; if there are at most so many swaps in all, each is used once."""
PER_TEST = 200
"""Resamples for each test of a family; 40 are the fewest with which Holm's correction can leave any significant."""

_CHUNK = 2**21
"""Numbers that are in memory at once."""


def change_p_value(gained: int, lost: int) -> float:
    """Return the exact p-value of the hypothesis of as many gains as losses among changed rows (McNemar's test)."""
    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def enough_resamples(tests: int, least: int) -> int:
    """Return how many resamples the tests of a family need, at least ``least``.

    The p-value of r resamples is at least 2 / (r + 2), and Holm's correction multiplies the smallest p-value by the
    number of tests: with too few resamples no test of a large family could be significant, whatever its effect
    (test_every_test_of_a_family_can_be_significant).
    """
    return max(least, PER_TEST * tests)


def swapped_p_value(a: Mean, b: Mean, seed: int, *, swaps: int = SWAPS) -> float:
    """Return the p-value of equal means of the same rows, by swapping each row's two values at random.

    For means over all rows these are sign flips of the differences. Rows that do not differ are ignored. All swaps are
    enumerated if there are at most `SWAPS`; otherwise ``swaps`` random ones are drawn, and the observed one is added.
    The p-value is that of `scipy.stats.permutation_test`, twice the smaller tail (test_swaps_are_those_of_scipy).

    Parameters
    ----------
    a, b : Mean
        Means of the same n rows.
    seed, swaps : int
    """
    ours, theirs = (np.column_stack([m.weights * m.values, m.weights]) for m in (a, b))
    scale = np.abs(ours).max(axis=0) + np.abs(theirs).max(axis=0)
    moves = (theirs - ours)[(np.abs(theirs - ours) > 1e-13 * len(ours) * scale).any(axis=1)]
    if len(moves) == 0:
        return 1.0
    sums = ours.sum(axis=0), theirs.sum(axis=0)
    exact = 2 ** len(moves) <= SWAPS
    observed = float(_contrast(np.zeros((1, 2)), *sums)[0])
    drawn = iter([_every(len(moves))]) if exact else _some(len(moves), swaps, seed)
    null = np.concatenate([_contrast(swap @ moves, *sums) for swap in drawn])
    return tail_p_value(observed, null, exact=exact)


def tail_p_value(observed: float, null: Vector, *, exact: bool = False) -> float:
    """Return twice the smaller share of the ``null`` values (r,) at or beyond the observed one, at most 1.

    With ``exact`` these are all possible values; otherwise the observed one is added.
    """
    known = null[np.isfinite(null)]
    # equal values may differ by rounding
    slack = 1e-12 * max(abs(observed), float(np.abs(known).max(initial=0.0)))
    extreme = min(int((known >= observed - slack).sum()), int((known <= observed + slack).sum()))
    more = 0 if exact else 1
    return min(1.0, 2 * (extreme + more) / (len(known) + more))


def _contrast(moved: Matrix, ours: Vector, theirs: Vector) -> Vector:
    with np.errstate(invalid="ignore", divide="ignore"):  # a swap may leave one side without a row
        left, right = ours + moved, theirs - moved
        contrasts: Vector = left[:, 0] / left[:, 1] - right[:, 0] / right[:, 1]
    return contrasts


def _every(rows: int) -> Matrix:
    return (np.arange(2**rows)[:, None] >> np.arange(rows) & 1).astype(np.float64)


def _some(rows: int, swaps: int, seed: int) -> Iterator[Matrix]:
    rng = np.random.default_rng(seed)
    step = max(1, _CHUNK // rows)
    for start in range(0, swaps, step):
        size = min(step, swaps - start)
        bits = np.unpackbits(np.frombuffer(rng.bytes(-(-size * rows // 8)), np.uint8), count=size * rows)
        yield bits.reshape(size, rows).astype(np.float64)


def inverted_p_value(drawn: Vector, correction: Correction, shifts: Vector) -> float:
    """Return the smallest 1 − level at which the interval of a difference excludes 0; 1 if none does.

    Parameters
    ----------
    drawn : (r,) array
        The difference on each resample.
    correction : Correction
    shifts : (s,) array
        The shifts that the interval subtracted from the resamples; the largest p-value counts.
    """
    p_values = []
    for shift in shifts:
        moved = drawn - shift
        # one more on either side, because finitely many resamples cannot show a probability of 0
        below, above = ((int(side.sum()) + 1) / (len(moved) + 2) for side in (moved <= 0, moved >= 0))
        p_values.append(2 * min(correction.level(below), 1 - correction.level(1 - above)))
    return float(min(1.0, max(p_values)))


def jackknife_p_value(value: float, left_out: Vector) -> float:
    """Return the p-value of a difference by Student's t, with the jackknife's standard error and m − 1 degrees.

    Resamples understate the spread of statistics that depend on a few rows, such as a standard deviation; the jackknife
    tends to overstate it (Efron and Stein, 1981). Rows without which the statistic is undefined are ignored. The result
    is 0 if fewer than two remain, so that another test decides alone.

    Parameters
    ----------
    value : float
    left_out : (m,) array
        The difference without each row, or each block of rows.
    """
    known = left_out[np.isfinite(left_out)]
    if value == 0:
        return 1.0
    if len(known) < 2:
        return 0.0
    error = float(np.sqrt((len(known) - 1) * known.var()))
    return float(2 * t.sf(abs(value) / error, len(known) - 1)) if error > 0 else 0.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number (Holm, 1979), which bounds the chance of any false rejection.

    Examples
    --------
    >>> from repsurgery.metrics import holm
    >>> holm([0.01, 0.04, 0.02])
    [0.03, 0.04, 0.04]
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ParameterError(f"holm got {p_values!r}; give a list of p-values between 0 and 1.")
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(raised, 1.0)
    return adjusted.tolist()
