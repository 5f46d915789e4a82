"""`Estimate`: a number as a record keeps it."""

import math
from dataclasses import dataclass

__all__ = ["Estimate"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, with the bounds of its bootstrap interval where there is one."""

    value: float
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        for number in (self.value, self.low, self.high):
            if number is not None and not math.isfinite(number):
                raise ValueError(f"an estimate of {number}")
