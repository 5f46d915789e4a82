"""Shares in three digits, with their intervals: ``.155 [.150, .161]``."""

from repsurgery.results import Estimate

__all__ = ["estimate", "fraction"]


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
    """Return a value with its interval, where it has one.

    Examples
    --------
    >>> from repsurgery.results import Estimate
    >>> estimate(Estimate(0.155, 0.1502, 0.1609)), estimate(Estimate(0.155)), estimate(None)
    ('.155 [.150, .161]', '.155', '–')
    """
    if given is None:
        return "–"
    shown = fraction(given.value, signed=signed)
    if given.low is None or given.high is None:
        return shown
    return f"{shown} [{fraction(given.low, signed=signed)}, {fraction(given.high, signed=signed)}]"
