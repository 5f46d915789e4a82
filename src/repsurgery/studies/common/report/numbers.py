"""Numbers and facts as text: shares in three digits, quantities in four, with intervals: ``.155 [.150, .161]``."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from repsurgery.studies.common.estimate import Estimate

__all__ = [
    "Format",
    "change",
    "estimate",
    "fact",
    "formatted",
    "fraction",
    "is_significant",
    "lowers",
    "number",
    "quantity",
    "word",
]

_ALPHA = 0.05
"""Significance level of the tests."""

Format = Literal["share", "quantity", "number", "percent"]
"""How a measure is written: `estimate`, `quantity`, `number`, or percent with at most one decimal."""


def number(value: float | None, digits: int = 3) -> str:
    """Return ``value`` in a few digits: "–" for None, and values below 0.001 as one digit and a power of ten."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "none" if math.isnan(value) else "∞"
    if value == 0:
        return "0"
    if abs(value) >= 10**digits:
        return f"{value:.0f}" if abs(value) < 1e6 else f"{value:.1e}"
    return f"{value:#.{digits}g}".rstrip(".") if abs(value) >= 1e-3 else f"{value:.0e}"


def word(value: Any) -> str:
    """Return an option or a fact as text; nested values are written on one line."""
    match value:
        case bool():
            return "yes" if value else "no"
        case None:
            return "–"
        case float():
            return f"{value:g}"
        case dict():
            return ", ".join(f"{name} {word(item)}" for name, item in value.items()) or "–"
        case list() | tuple():
            return ", ".join(map(word, value)) or "–"
    return str(value)


def fact(value: Any) -> str:
    """Return a measured fact as text: a float in three digits, everything else as `word`."""
    return number(value) if isinstance(value, float) else word(value)


def fraction(value: float | None, *, signed: bool = False, digits: int = 3) -> str:
    """Return ``value`` without the zero before its decimal point, and "–" for None.

    Examples
    --------
    >>> fraction(0.1552), fraction(-0.0121, signed=True), fraction(0.0121, signed=True), fraction(1.0)
    ('.155', '−.012', '+.012', '1.000')
    """
    return "–" if value is None else _decimal(value, digits, signed=signed, zero="")


def estimate(estimated: Estimate | None, *, signed: bool = False) -> str:
    """Return a share, with its interval if it has one.

    Examples
    --------
    >>> from repsurgery.studies.common.estimate import Estimate
    >>> estimate(Estimate(0.155, 0.1502, 0.1609)), estimate(Estimate(0.155)), estimate(None)
    ('.155 [.150, .161]', '.155', '–')
    """
    return _bracketed(estimated, lambda value: fraction(value, signed=signed))


def quantity(estimated: Estimate | None, *, signed: bool = False) -> str:
    """Return a number of any size, with its interval if it has one: four digits of the largest, three decimals at most.

    Examples
    --------
    >>> from repsurgery.studies.common.estimate import Estimate
    >>> quantity(Estimate(29.0123, 28.1, 30)), quantity(Estimate(-1.5), signed=True), quantity(Estimate(226.31))
    ('29.01 [28.10, 30.00]', '−1.500', '226.3')
    """
    if estimated is None:
        return "–"
    largest = max(abs(value) for value in (estimated.value, estimated.low, estimated.high) if value is not None)
    if largest >= 1e6:
        return _bracketed(estimated, number)
    decimals = 3 - min(3, int(math.log10(max(largest, 1.0))))
    return _bracketed(estimated, lambda value: _decimal(value, decimals, signed=signed))


def formatted(estimated: Estimate | None, style: Format, *, interval: bool = True) -> str:
    """Return the value of a measure in its format; ``interval=False`` leaves out the interval."""
    return "–" if estimated is None else _FORMATS[style](estimated if interval else Estimate(estimated.value))


_FORMATS: Mapping[Format, Callable[[Estimate], str]] = {
    "share": estimate,
    "quantity": quantity,
    "number": lambda estimated: number(estimated.value),
    "percent": lambda estimated: f"{estimated.value:.1%}".replace(".0%", "%"),
}


def change(estimated: Estimate | None, *, share: bool = True) -> str:
    """Return a difference with its sign, and a star if its test is significant.

    Examples
    --------
    >>> from repsurgery.studies.common.estimate import Estimate
    >>> change(Estimate(-0.1, -0.12, -0.08, p_value=0.001)), change(Estimate(0.1, 0.02, 0.22, p_value=0.06))
    ('−.100 [−.120, −.080]*', '+.100 [+.020, +.220]')
    """
    text = estimate(estimated, signed=True) if share else quantity(estimated, signed=True)
    return text + "*" if estimated is not None and is_significant(estimated) else text


def is_significant(estimated: Estimate) -> bool:
    """Return whether the test of a difference is significant at the level of 5 %; False without a test."""
    return estimated.p_value is not None and estimated.p_value <= _ALPHA


def lowers(difference: Estimate | None) -> bool:
    """Return whether a difference is significantly below 0."""
    return difference is not None and is_significant(difference) and difference.value < 0


def _decimal(value: float, decimals: int, *, signed: bool, zero: str = "0") -> str:
    rounded = round(value, decimals)
    sign = "−" if rounded < 0 else "+" if signed and rounded > 0 else ""
    digits = f"{abs(rounded):.{decimals}f}"
    return sign + (zero + digits[1:] if digits.startswith("0.") else digits)


def _bracketed(estimated: Estimate | None, text: Callable[[float], str]) -> str:
    if estimated is None:
        return "–"
    if estimated.low is None or estimated.high is None:
        return text(estimated.value)
    return f"{text(estimated.value)} [{text(estimated.low)}, {text(estimated.high)}]"
