"""`check_limits`: refuse options of a configuration line that lie outside their range."""

import math
from collections.abc import Mapping

from repsurgery.errors import ParameterError

__all__ = ["check_limits"]


def check_limits(line: str, chosen: Mapping[str, float], limits: Mapping[str, tuple[float, float]]) -> None:
    """Raise an error that names the first option of ``line`` whose value lies outside [low, high] or is not finite."""
    for option, (low, high) in limits.items():
        value = chosen[option]
        if not low <= value <= high or math.isinf(value):
            least = "be finite" if not math.isfinite(value) else f"be at least {low:g}"
            needed = least if math.isinf(high) else f"lie in [{low:g}, {high:g}]"
            raise ParameterError(f"{line!r} has {option}={value:g}; it must {needed}.")
