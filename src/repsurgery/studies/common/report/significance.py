"""p-values of the differences in a record: computed where an older record has none, and adjusted by Holm's method."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from scipy.special import ndtr, ndtri

from repsurgery.metrics import holm
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.tables import Measured

__all__ = ["LEVEL", "adjusted", "adjusted_rows", "normal_p_value", "with_test", "without_tests"]

LEVEL = 0.95
"""Level of the intervals."""
Row = TypeVar("Row", bound=Measured)


def with_test(difference: Estimate) -> Estimate:
    """Return a difference with a p-value: its own, or else that of a normal law as wide as its interval."""
    if difference.p_value is not None or difference.low is None or difference.high is None:
        return difference
    return replace(difference, p_value=normal_p_value(difference.value, difference.low, difference.high))


def normal_p_value(value: float, low: float, high: float) -> float | None:
    """Return the two-sided p-value of ``value`` under a normal law whose 95% interval is (low, high)."""
    error = (high - low) / (2 * ndtri((1 + LEVEL) / 2))
    if error == 0:
        return 1.0 if value == 0 else None
    return float(2 * ndtr(-abs(value) / error))


def adjusted(differences: Sequence[Estimate | None]) -> list[Estimate | None]:
    """Return the differences with p-values adjusted by Holm's method over all that have one."""
    p_values = {i: d.p_value for i, d in enumerate(differences) if d is not None and d.p_value is not None}
    raised = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return [replace(d, p_value=raised[i]) if d is not None and i in raised else d for i, d in enumerate(differences)]


def adjusted_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the rows with the p-values of each measure adjusted over the rows."""
    listed: list[Any] = list(rows)
    keys = dict.fromkeys(key for row in listed for key in row.differences)
    columns = {key: adjusted([row.differences.get(key) for row in listed]) for key in keys}
    return [replace(row, differences={key: columns[key][i] for key in row.differences}) for i, row in enumerate(listed)]


def without_tests(rows: Iterable[Measured]) -> bool:
    """Return whether the rows come from an older record, which has intervals of differences but no tests."""
    differences = [d for row in rows for d in row.differences.values() if d.low is not None]
    return bool(differences) and all(d.p_value is None for d in differences)
