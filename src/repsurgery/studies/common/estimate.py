"""`Estimate`: a number as a record keeps it."""

import math
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Estimate"]


class _Interval(Protocol):
    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, with the bounds of its interval where there is one, and of a difference the p-value of its test.

    Older records keep no p-values.
    """

    value: float
    low: float | None = None
    high: float | None = None
    p_value: float | None = None

    def __post_init__(self) -> None:
        for number in (self.value, self.low, self.high, self.p_value):
            if number is not None and not math.isfinite(number):
                raise ValueError(f"an estimate of {number}")

    @classmethod
    def of(cls, interval: _Interval, p_value: float | None = None) -> "Estimate":
        """Keep an interval of `repsurgery.metrics`."""
        return cls(interval.value, interval.low, interval.high, p_value)
