"""The page of a tuned steering, from its record."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repsurgery.checkpoint import write_text
from repsurgery.studies.common.report.numbers import fraction
from repsurgery.studies.common.report.rendering import printable, render
from repsurgery.studies.common.report.tables import shown_label
from repsurgery.studies.tuned.plot import front_caption, plot_front
from repsurgery.studies.tuned.record import check_tune_record
from repsurgery.studies.tuned.tables import candidates_table, compared_table, facts_tables, judges_table
from repsurgery.studies.tuned.words import (
    Scale,
    cautions,
    effect_words,
    judge_words,
    measure_words,
    optimism_words,
    price_words,
    tested_words,
)

__all__ = ["write_tune_report"]

_PAIRS = 12
"""The largest number of pairs of texts on the page."""


def write_tune_report(record: Mapping[str, Any], folder: str | os.PathLike[str]) -> Path:
    """Write ``index.html`` and ``front.svg`` into ``folder``, each file completely or not at all.

    The page is self-contained: no script, no font, no picture from elsewhere. Without a measured candidate there is
    nothing to draw; the ``front.svg`` of an older report is then removed.

    Parameters
    ----------
    record : mapping
        The contents of ``record.json``; see `read_tune_record`.
    folder : path
        Created if it is missing.

    Returns
    -------
    Path
        Of ``index.html``.

    Raises
    ------
    RecordError
        The record is of another kind or layout, or lacks a field that the page shows. Nothing is written.
    MissingExtraError
        Without Jinja2 or matplotlib. Nothing is written.

    Guarantees
    ----------
    Equal records give equal bytes (test_equal_records_give_equal_bytes).
    Texts are shown and never interpreted (test_text_of_a_record_is_shown_and_never_interpreted).
    """
    check_tune_record(record)
    shown = _printable(record)
    drawing = plot_front(shown)
    page = render("tuned.html.jinja", drawing=drawing, **_headline(shown), **_details(shown))
    if drawing is None:
        (Path(folder) / "front.svg").unlink(missing_ok=True)
    else:
        write_text(Path(folder) / "front.svg", drawing)
    return write_text(Path(folder) / "index.html", page)


def _headline(record: Mapping[str, Any]) -> dict[str, Any]:
    scale, source, target = Scale.of(record), shown_label(record["source"]), shown_label(record["target"])
    prices = price_words(record)
    return {
        "title": f"{record['model']}, steered from {source} to {target}",
        "source": source,
        "cautions": cautions(record),
        "measure": measure_words(record),
        "base": scale.value(record["base"]),
        "steered": scale.value(record["steered"]),
        "effect": effect_words(record),
        "test": tested_words(record),
        "judge": judge_words(record["judge"]),
        "prices": [f"Price: {prices[0]}", *prices[1:]],
        "pairs": [_pair(pair) for pair in record.get("pairs", ())[:_PAIRS]],
    }


def _details(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "caption": front_caption(record),
        "compared": compared_table(record),
        "candidates": candidates_table(record),
        "judges": judges_table(record),
        "optimism": optimism_words(record),
        "certificate": record.get("certificate", ()),
        "usage": _usage(record),
        "notes": record.get("notes", ()),
        "facts": facts_tables(record),
    }


def _pair(pair: Mapping[str, Any]) -> dict[str, str]:
    # a continuation begins with the space after its prompt, which would look like an indentation
    texts = {key: str(pair.get(key) or "").strip() for key in ("prompt", "base", "steered")}
    scores = {key: pair.get(key) for key in ("base_score", "steered_score")}
    return texts | {key: "" if score is None else fraction(score, digits=2) for key, score in scores.items()}


def _usage(record: Mapping[str, Any]) -> str:
    model = record["model"]
    return "\n".join(
        [
            f'repsurgery generate FILE --model {shlex.quote(model)} --prompt "Once upon a time"',
            "",
            "import repsurgery as rs",
            "from repsurgery import lm",
            f"model, tokenizer = lm.load({model!r})",
            'lm.generate(model, tokenizer, ["Once upon a time"], steering=rs.load("FILE"))',
        ]
    )


def _printable(value: Any) -> Any:
    """Return JSON values with the control characters of all texts replaced."""
    match value:
        case str():
            return printable(value)
        case Mapping():
            return {printable(str(key)): _printable(item) for key, item in value.items()}
        case list() | tuple():
            return [_printable(item) for item in value]
    return value
