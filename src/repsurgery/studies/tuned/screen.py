"""The last screen of a tuned steering: a few plain lines for a terminal."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from repsurgery.studies.common.report.numbers import fraction
from repsurgery.studies.common.report.rendering import printable
from repsurgery.studies.common.report.tables import shown_label
from repsurgery.studies.tuned.record import check_tune_record
from repsurgery.studies.tuned.words import (
    Scale,
    cautions,
    effect_words,
    judge_words,
    measure_words,
    price_words,
    tested_words,
)

__all__ = ["LINES", "WIDTH", "summary_lines"]

LINES = 24
WIDTH = 100
_PAIRS = 3
"""The largest number of pairs of texts on the screen; one less if there is something to say first."""
_INDENT = 9
"""Columns of the words before texts."""
_NAME = 32
"""The largest number of characters of a label or judge on the screen; the figures after it must not be cut off."""


def summary_lines(record: Mapping[str, Any]) -> list[str]:
    """Return at most `LINES` lines of at most `WIDTH` characters.

    Pairs of texts come first, then effect, test, judge, price, and the certificate as far as there is room.
    Whoever prints them escapes markup; control characters are already replaced.

    Guarantees
    ----------
    The screen is never larger, whatever the texts (test_the_screen_is_never_too_large).
    A budget that was not met is stated on it (test_a_missed_budget_is_stated_before_the_effect).
    """
    check_tune_record(record)
    source, judge = (_short(_line(shown_label(name)), _NAME) for name in (record["source"], record["judge"]["name"]))
    named = {**record, "source": source, "judge": {**record["judge"], "name": judge}}
    warnings, results = _warnings(named), _results(named)
    shown = record.get("pairs", ())[: _PAIRS - bool(warnings)]
    above = [*(line for pair in shown for line in _pair(pair, source)), *warnings, *results]
    sentences = " ".join(record.get("certificate", ()))
    certificate = _wrapped(f"Certificate: {sentences}") if sentences.strip() else []
    return [*above, *_cut(certificate, LINES - len(above))]


def _pair(pair: Mapping[str, Any], source: str) -> list[str]:
    """Return four lines: prompt, base, steered, and an empty one."""
    lines = [_labelled("prompt", pair.get("prompt"))]
    for side in ("base", "steered"):
        score = pair.get(f"{side}_score")
        lines.append(
            _labelled(side, pair.get(side), "" if score is None else f"  {source} {fraction(score, digits=2)}")
        )
    return [*lines, ""]


def _warnings(record: Mapping[str, Any]) -> list[str]:
    """Return what must be said first, in at most two lines each."""
    return [line for caution in cautions(record) for line in _cut(_wrapped(caution), 2)]


def _results(record: Mapping[str, Any]) -> list[str]:
    """Return at most six lines: the effect, its test, the judge and the price."""
    scale = Scale.of(record)
    change = f"{scale.value(record['base'])} → {scale.value(record['steered'])}"
    return [
        _fitted(f"{_capital(measure_words(record))}: {change}"),
        _fitted(f"Effect: {effect_words(record)}"),
        _fitted(f"Test: {tested_words(record)}"),
        _fitted(f"Judge: {judge_words(record['judge'])}"),
        *(_fitted(f"Price: {words}") for words in price_words(record)),
    ]


def _labelled(label: str, text: Any, end: str = "") -> str:
    return label.ljust(_INDENT) + _short(_line(text) or "(nothing)", WIDTH - _INDENT - len(end)) + end


def _line(text: Any) -> str:
    return " ".join(printable(str(text or "")).split())


def _short(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` characters; three dots stand for what was cut off."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def _fitted(text: str) -> str:
    return _short(_line(text), WIDTH)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(_line(text), WIDTH)


def _cut(lines: Sequence[str], count: int) -> list[str]:
    """Return at most ``count`` lines; the last one ends in three dots if lines were left out."""
    if len(lines) <= count:
        return list(lines)
    return [*lines[: count - 1], _short(lines[count - 1] + " …", WIDTH)] if count > 0 else []


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
