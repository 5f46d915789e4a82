"""Shares in three digits and quantities in four, with their intervals: ``.155 [.150, .161]``."""

import math
from collections.abc import Callable

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.tables import number

__all__ = ["ALPHA", "change", "estimate", "fraction", "is_significant", "quantity"]

ALPHA = 0.05
"""Level of the tests."""


def fraction(value: float | None, *, signed: bool = False, digits: int = 3) -> str:
    """Return ``value`` without the zero before its point, "–" where there is none.

    Examples
    --------
    >>> fraction(0.1552), fraction(-0.0121, signed=True), fraction(0.0121, signed=True), fraction(1.0)
    ('.155', '−.012', '+.012', '1.000')
    """
    if value is None:
        return "–"
    rounded = round(value, digits)
    text = f"{abs(rounded):.{digits}f}"
    text = text.removeprefix("0")
    if rounded < 0:
        return "−" + text
    return "+" + text if signed and rounded > 0 else text


def estimate(given: Estimate | None, *, signed: bool = False) -> str:
    """Return a share with its interval, where it has one.

    Examples
    --------
    >>> from repsurgery.studies.common.estimate import Estimate
    >>> estimate(Estimate(0.155, 0.1502, 0.1609)), estimate(Estimate(0.155)), estimate(None)
    ('.155 [.150, .161]', '.155', '–')
    """
    return _bracketed(given, lambda value: fraction(value, signed=signed))


def quantity(given: Estimate | None, *, signed: bool = False) -> str:
    """Return a number of any size, with its interval, where it has one: four digits of the largest, three decimals.

    Examples
    --------
    >>> from repsurgery.studies.common.estimate import Estimate
    >>> quantity(Estimate(29.0123, 28.1, 30)), quantity(Estimate(-1.5), signed=True), quantity(Estimate(226.31))
    ('29.01 [28.10, 30.00]', '−1.500', '226.3')
    """
    if given is None:
        return "–"
    largest = max(abs(value) for value in (given.value, given.low, given.high) if value is not None)
    if largest >= 1e6:
        return _bracketed(given, number)
    decimals = 3 - min(3, int(math.log10(max(largest, 1.0))))
    return _bracketed(given, lambda value: _decimal(value, decimals, signed=signed))


def _decimal(value: float, decimals: int, *, signed: bool) -> str:
    rounded = round(value, decimals)
    sign = "−" if rounded < 0 else "+" if signed and rounded > 0 else ""
    return f"{sign}{abs(rounded):.{decimals}f}"


def _bracketed(given: Estimate | None, shown: Callable[[float], str]) -> str:
    if given is None:
        return "–"
    if given.low is None or given.high is None:
        return shown(given.value)
    return f"{shown(given.value)} [{shown(given.low)}, {shown(given.high)}]"


def change(given: Estimate | None, *, share: bool = True) -> str:
    """Return a difference with its sign, and a star where its test sees one.

    Examples
    --------
    >>> from repsurgery.studies.common.estimate import Estimate
    >>> change(Estimate(-0.1, -0.12, -0.08, p_value=0.001)), change(Estimate(0.1, 0.02, 0.22, p_value=0.06))
    ('−.100 [−.120, −.080]*', '+.100 [+.020, +.220]')
    """
    shown = estimate(given, signed=True) if share else quantity(given, signed=True)
    return shown + "*" if given is not None and is_significant(given) else shown


def is_significant(given: Estimate) -> bool:
    """Return whether the test of a difference sees one, at the level of 5 %; never where there was no test."""
    return given.p_value is not None and given.p_value <= ALPHA
