"""One picture of all methods: toxicity against perplexity against the cost of a token."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.drawing import COLOURS, GREY, STYLE, matplotlib, set_log_ticks, svg
from repsurgery.studies.common.report.front import undominated
from repsurgery.studies.common.report.labels import place_names
from repsurgery.studies.common.report.numbers import number
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.columns import EMT, toxicity_axis
from repsurgery.studies.toxicity.report.damage import is_damaged
from repsurgery.studies.toxicity.report.plots import is_wide
from repsurgery.studies.toxicity.report.rivals import (
    TUNED,
    fluency_judge,
    has_rivals,
    is_rival,
    prompts_of,
    short_names,
    unseen_scorer,
)

__all__ = ["front_rows", "plot_rivals", "rivals_caption"]

_INK = "#20262d"
_SMALLEST, _PER_DECADE = 4.0, 5.0
"""Radius in points of a method that costs as much as the base, and what a tenfold cost adds to it."""
_COSTLY = 1.2
"""From this cost per token on, the name of a method gives it."""


class _Look(NamedTuple):
    """How a kind of row is drawn: its marker alone tells it apart."""

    label: str
    marker: str
    colour: str
    scale: float = 1.0


_BASE = _Look("base", "s", COLOURS["base"], 0.9)
_RIVAL = _Look("rival", "o", COLOURS["mean"])
_STEERING = _Look("affine steering", "D", COLOURS["mimic"], 0.85)
_TUNED = _Look("tuned affine steering", "*", COLOURS["mimic"], 1.7)
_LOOKS = (_BASE, _RIVAL, _STEERING, _TUNED)


def plot_rivals(record: ToxicityRecord) -> str | None:
    """Return the picture as SVG text; None without a rival, or if fewer than two rows have both measures."""
    x, y = _axes(record)
    rows = _measured(record)
    if not has_rivals(record) or len(rows) < 2:
        return None
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(10.8, 6.8), layout="constrained")
        axis = figure.subplots()
        axis.grid(color="#e9edf0", linewidth=0.8)
        if is_wide([c.measures[x].value for c in rows], ratio=2.5):
            axis.set_xscale("log")
            set_log_ticks(axis.xaxis, [c.measures[x].value for c in rows])
        front = front_rows(record)
        steps = _corners([(c.measures[x].value, c.measures[y].value) for c in front])
        axis.plot(*zip(*steps, strict=True), color="#9aa3ad", linewidth=1.8, zorder=1)
        for c in rows:
            place = _figure(record, c, x).value, _figure(record, c, y)
            _draw(axis, c, *place, hollow=_is_short(record, c), best=c in front)
        axis.margins(0.09)
        axis.set_xlabel(f"how unlikely {fluency_judge(record).name} finds the texts (perplexity)")
        axis.set_ylabel(toxicity_axis(unseen_scorer(record)))
        _draw_legends(figure, mpl, record, rows)
        figure.draw_without_rendering()
        names = short_names(record.configurations)
        points = [(_figure(record, c, x).value, _figure(record, c, y).value) for c in rows]
        shown = [_name(record, c, names[c.name]) for c in rows]
        place_names(axis, points, shown, radii=[*map(_radius, rows)], line=steps)
        return svg(figure)


def rivals_caption(record: ToxicityRecord) -> str:
    """Return the caption, which explains every mark of the picture."""
    rows = _measured(record)
    sentences = [
        f"Expected max toxicity by {unseen_scorer(record)} against perplexity under {fluency_judge(record).name}: down "
        "and to the left is better. Squares: base; circles: rivals; diamonds: affine steerings; stars: tuned ones. The "
        "area grows with the cost of a token, relative to the base; names give it from 1.2 times on. Bars: 95% "
        "intervals of the toxicity.",
        "The grey steps and the heavy outlines mark the Pareto front: no other method is lower on both axes."
        + (" Damaged models take no part in it." if any(is_damaged(record, c) for c in rows) else ""),
    ]
    if any(_is_short(record, c) for c in rows):
        sentences.append(
            "Hollow markers were measured on fewer prompts, whose number is beside the name. They stand at the base's "
            "figure plus their change from the base on these prompts, and take no part in the front."
        )
    if any(c.cost_per_token is None for c in rows):
        sentences.append("Where the cost is not known, the marker has the smallest size.")
    return " ".join(sentences)


def front_rows(record: ToxicityRecord) -> list[Configured]:
    """Return the rows on the Pareto front of perplexity and toxicity, by perplexity.

    Rows that cover fewer prompts take no part, because other prompts have other figures; nor do damaged models.

    Guarantees
    ----------
    A row on fewer prompts is never on the front (test_a_row_on_fewer_prompts_is_never_on_the_front), nor is a damaged
    model (test_a_damaged_model_is_never_on_the_front).
    """
    x, y = _axes(record)
    rows = [c for c in _measured(record) if not _is_short(record, c) and not is_damaged(record, c)]
    return [rows[i] for i in undominated([(c.measures[x].value, c.measures[y].value) for c in rows])]


def _axes(record: ToxicityRecord) -> tuple[str, str]:
    return fluency_judge(record).key, f"{unseen_scorer(record)}.{EMT}"


def _measured(record: ToxicityRecord) -> list[Configured]:
    return [c for c in record.configurations if set(_axes(record)) <= c.measures.keys()]


def _is_short(record: ToxicityRecord, c: Configured) -> bool:
    count, every = prompts_of(record, c), record.prompts.get("count")
    return count is not None and every is not None and count < every


def _figure(record: ToxicityRecord, c: Configured, key: str) -> Estimate:
    """Return what is drawn: the measure, or on fewer prompts that of the base plus the change from it on these."""
    base = record.configurations[0].measures.get(key)
    if not _is_short(record, c) or base is None or key not in c.differences:
        return c.measures[key]
    change = c.differences[key]
    low, high = (None if bound is None else base.value + bound for bound in (change.low, change.high))
    return Estimate(base.value + change.value, low, high)


def _look(c: Configured) -> _Look:
    if c.name == "base":
        return _BASE
    return _RIVAL if is_rival(c) else _TUNED if c.choices.get("method") == TUNED else _STEERING


def _name(record: ToxicityRecord, c: Configured, short: str) -> str:
    cost = "" if c.cost_per_token is None or c.cost_per_token < _COSTLY else f", {number(c.cost_per_token, 2)}×"
    count = prompts_of(record, c)
    return short + cost + (f" ({count} prompt{'' if count == 1 else 's'})" if _is_short(record, c) else "")


def _radius(c: Configured) -> float:
    return _look(c).scale * _radius_of(1.0 if c.cost_per_token is None else c.cost_per_token)


def _radius_of(cost: float) -> float:
    return _SMALLEST + _PER_DECADE * math.log10(max(cost, 1.0))


def _draw(axis: Any, c: Configured, across: float, toxicity: Estimate, *, hollow: bool, best: bool) -> None:
    look = _look(c)
    if toxicity.low is not None and toxicity.high is not None:
        bar = [toxicity.low, toxicity.high]
        axis.plot([across, across], bar, color=look.colour, linewidth=0.9, alpha=0.25, zorder=2)
    # large markers are drawn first, so that none hides a smaller one
    marker = axis.plot([across], [toxicity.value], linestyle="none", zorder=3 + 1 / _radius(c), marker=look.marker)[0]
    marker.set(markersize=2 * _radius(c), markeredgecolor=_INK if best else look.colour)
    marker.set(markerfacecolor="white" if hollow else look.colour + "b0", markeredgewidth=1.7 if best else 0.9)


def _corners(front: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of the steps from each point of the front to the next: to its perplexity, then down to it."""
    corners = list(front[:1])
    for (_, above), point in itertools.pairwise(front):
        corners += [(point[0], above), point]
    return corners


def _draw_legends(figure: Any, mpl: Any, record: ToxicityRecord, rows: Sequence[Configured]) -> None:
    def mark(label: str, **look: Any) -> Any:
        return mpl.lines.Line2D([], [], label=label, **{"linestyle": "none", "color": GREY, **look})

    shown = {_look(c) for c in rows}
    handles = [
        mark(look.label, marker=look.marker, color=look.colour, markersize=8 * look.scale)
        for look in _LOOKS
        if look in shown
    ]
    if any(_is_short(record, c) for c in rows):
        handles.append(mark("fewer prompts", marker="o", markerfacecolor="white", markersize=8))
    handles.append(mark("Pareto front", linestyle="-", color="#9aa3ad", linewidth=1.8))
    costs = [c.cost_per_token for c in rows if c.cost_per_token is not None]
    largest = max(costs, default=1.0)
    handles += [
        mark(f"{cost}× the cost of a token", marker="o", markersize=2 * _radius_of(cost), markerfacecolor="#dfe4e9")
        for cost in (1, 3, 10, 30)
        if costs and (cost == 1 or cost <= 1.5 * largest)
    ]
    figure.legend(
        handles=handles, frameon=False, loc="outside right upper", fontsize=8.5, labelspacing=1.5, handletextpad=1.2
    )
