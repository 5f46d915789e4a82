"""What each method needs before and while it writes: data, training, memory, passes."""

from collections.abc import Mapping
from typing import Any

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.numbers import number, quantity, word
from repsurgery.studies.common.report.tables import Column, Table, table_of
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.rivals import TUNED, short_names
from repsurgery.studies.toxicity.report.side_by_side import sides

__all__ = ["needs_table", "passes_per_token"]

_FITS = {
    "last": "labelled texts",
    "tokens": "labelled texts",
    "on-policy": "the model's own texts; a scorer",
}
"""What a steering needs, by its fit."""


def needs_table(record: ToxicityRecord) -> Table | None:
    """Return what each row needs, in the order of the table of all methods; None if the record says nothing."""
    short, rows = short_names(record.configurations), [side.ours for side in sides(record) if side.ours is not None]
    names: list[Column[Configured]] = [Column("method", lambda c: short[c.name]), Column("needs", _needs)]
    columns: list[Column[Configured]] = [
        Column("cost per token", lambda c: "–" if c.cost_per_token is None else f"{number(c.cost_per_token)}×"),
        Column("extra passes per token", lambda c: number(passes_per_token(c))),
        Column("training, minutes", _minutes if any(c.training_seconds is not None for c in rows) else lambda c: "–"),
        Column("memory beyond the base, GB", _memory),
        Column("parts made beforehand", _parts),
    ]
    caption = (
        "Cost per token: the time of a new token divided by that of the base, measured beside it. Extra passes: "
        "forward passes beyond the one that every new token takes. Training: CPU time of everything that is trained or "
        "collected beforehand; the vectors, texts and fits of steerings are shared among rows, and their time is not "
        "measured. Memory: the peak of the process while the row wrote, minus that of the base, which wrote beside it "
        "in the same process. Parts: what is stored, with the time that it took and its size."
    )
    return table_of("What each method needs", names, columns, rows, caption)


def passes_per_token(c: Configured) -> float | None:
    """Return the forward passes beyond the first that a written token takes; None if it is not known."""
    stated = c.facts.get("extra_passes_per_token")
    if stated is not None:
        return float(stated)
    cost: Mapping[str, Any] = c.facts.get("cost_per_continuation", {})
    written = cost.get("tokens_written")
    return cost["extra_passes"] / written if written and "extra_passes" in cost else None


def _needs(c: Configured) -> str:
    stated = c.facts.get("needs")
    if stated is not None:
        return word(stated)
    if c.choices.get("method") == "base":
        return "nothing"
    if c.choices.get("method") == TUNED:
        return "labelled texts; a scorer; prompts to search on"
    return _FITS.get(str(c.choices.get("fit")), "–")


def _parts(c: Configured) -> str:
    parts: Mapping[str, Mapping[str, Any]] = c.facts.get("parts", {})
    return "; ".join(f"{name} ({_made(part)})" if _made(part) else name for name, part in parts.items()) or "–"


def _made(part: Mapping[str, Any]) -> str:
    seconds, size = part.get("training_seconds"), part.get("bytes")
    words = [
        "" if seconds is None else f"{_scaled(seconds, 60)} min",
        "" if size is None else f"{_scaled(size, 1e6)} MB",
    ]
    return ", ".join(filter(None, words))


def _minutes(c: Configured) -> str:
    return "not measured" if c.training_seconds is None else _scaled(c.training_seconds, 60)


def _memory(c: Configured) -> str:
    base = c.facts.get("peak_bytes_base")
    if base is None or c.peak_bytes is None:
        return "–"
    return quantity(Estimate((c.peak_bytes - base) / 1e9), signed=True)


def _scaled(value: float | None, unit: float) -> str:
    return number(None if value is None else value / unit)
