"""`Estimate`: a number of a record, with its interval and p-value."""

from typing import TYPE_CHECKING

from repsurgery.errors import RecordError
from repsurgery.studies.common.checked import Checked, checked

if TYPE_CHECKING:
    from repsurgery.metrics import Interval

__all__ = ["Estimate"]


@checked(RecordError)
class Estimate(Checked):
    """A finite number, the bounds of its interval if it has one, and, for a difference, the p-value of its test.

    Older records contain no p-values.
    """

    value: float
    low: float | None = None
    high: float | None = None
    p_value: float | None = None

    @classmethod
    def of(cls, interval: "Interval", p_value: float | None = None) -> "Estimate":
        """Return an interval of `repsurgery.metrics` as an estimate."""
        return cls(interval.value, interval.low, interval.high, p_value)
