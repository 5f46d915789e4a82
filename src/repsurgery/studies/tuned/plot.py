"""The figure of a tuned steering: effect against price of every measured candidate, with the Pareto front."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from repsurgery.pictures.style import COLOURS, GREY, INK, SPARE_COLOURS, STYLE, axes, matplotlib
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.drawing import svg
from repsurgery.studies.tuned.front import chosen_of, compared_in_search, effect_of, estimate_of, pareto_front, price_of
from repsurgery.studies.tuned.words import Scale

__all__ = ["RACED", "draw_front", "front_caption", "plot_front"]

RACED = frozenset({"chosen", "confirmed", "raced"})
"""Statuses of candidates that were measured to the end of the race; only these make up the front."""
_FAR = 3.0
"""The scale of prices ends at this multiple of the budget at the latest."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where things are drawn: prices beyond ``edge`` at the edge, effects in units of ``unit``."""

    edge: float
    unit: float

    def x(self, price: float) -> float:
        return min(price, self.edge)

    def y(self, effect: float) -> float:
        return effect * self.unit


def plot_front(record: Mapping[str, Any]) -> str | None:
    """Return the figure as SVG text; None if no candidate was measured."""
    if not _points(record):
        return None
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(9.6, 4.8), layout="constrained")
        draw_front(record, figure.subplots())
        return svg(figure)


def draw_front(record: Mapping[str, Any], ax: Any = None) -> Any:
    """Draw the figure on ``ax``, or on the axes of a new figure of pyplot, and return the axes."""
    points = _points(record)
    frame = _Frame(_edge(record), 100.0 if record["measure"] == "share" else 1.0)
    colours = _colours(str(c.get("method")) for c in (*record["candidates"], *record.get("compared", ())))
    with axes(ax, size=(9.6, 4.8)) as axis:
        _draw_frame(axis, record, frame)
        _draw_line(axis, [c for c, _, _ in points if c.get("status") in RACED], frame)
        for candidate, price, effect in points:
            _draw_candidate(axis, candidate, price, effect, frame, colours[str(candidate.get("method"))])
        _draw_confirmed(axis, record, frame, colours)
        _draw_legend(axis, colours, points, record)
        return axis


def _points(record: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], float, Estimate]]:
    return [
        (c, p, e)
        for c in record.get("candidates", ())
        if (p := price_of(c)) is not None and (e := effect_of(c)) is not None
    ]


def front_caption(record: Mapping[str, Any]) -> str:
    """Return the caption, which explains every mark of the figure."""
    unit = "in percentage points" if record["measure"] == "share" else "of the mean score"
    prompts = record.get("search_prompts")
    searched = "the search prompts" if prompts is None else f"the {prompts} search prompts"
    far = any((price_of(c) or 0.0) > _edge(record) for c in record.get("candidates", ()))
    sentences = [
        f"Each circle is a candidate that was measured. Across: its measured price, KL(base ‖ steered) in nats per "
        f"token. Up: its effect on {searched}, steered minus base, {unit}; lower is better, and the base model is at "
        f"the origin.",
        "Thin vertical bars are 95 % intervals. The colour is the method; a filled circle steers all positions, and a "
        "hollow one steers only where a gate opens. Faint circles were stopped early, on fewer prompts.",
        "The grey steps, from the base on, are the Pareto front: no candidate that finished the race is both "
        "cheaper and more effective than one of these. The ring marks the chosen candidate, and "
        "the dashed vertical line the budget.",
        f"Stars are figures from the {record['confirmation_prompts']} confirmation prompts, which took no part in the "
        "search; a dotted line leads from the ring to the star of the chosen candidate.",
    ]
    if far:
        sentences.append(
            "Triangles at the right edge have a higher price than the scale shows; it is in the table below."
        )
    return " ".join(sentences)


def _edge(record: Mapping[str, Any]) -> float:
    """Return the largest price on the scale: of what was raced or confirmed, but not far beyond the budget."""
    raced = [c for c in record.get("candidates", ()) if c.get("status") in RACED]
    prices = [p for c in (*raced, *record.get("compared", ())) if (p := price_of(c)) is not None]
    budget, confirmed = float(record["budget"]["kl"]), float(record["price"]["kl"])
    return max(1.25 * budget, min(1.1 * max([*prices, confirmed]), _FAR * budget), 1e-6)


def _colours(methods: Iterable[str]) -> dict[str, str]:
    """Return a colour for each method, all different while colours last."""
    spare = iter(SPARE_COLOURS)
    return {method: COLOURS.get(method) or next(spare, GREY) for method in sorted(set(methods))}


def _draw_frame(axis: Any, record: Mapping[str, Any], frame: _Frame) -> None:
    axis.grid(color="#e3e7eb", linewidth=0.8)
    axis.axhline(0, color=GREY, linewidth=1.0, linestyle=":")
    axis.plot([0], [0], marker="s", color=COLOURS["base"], markersize=6, linestyle="none")
    axis.annotate("base", (0, 0), (7, 6), textcoords="offset points", fontsize=8, color=INK)
    budget = record["budget"]["kl"]
    axis.axvline(budget, color=GREY, linewidth=1.0, linestyle="--", zorder=0.5)
    above = {"transform": axis.get_xaxis_transform(), "ha": "center", "va": "bottom"}
    axis.text(budget, 1.01, "budget", fontsize=8, color=GREY, **above)
    axis.set_xlim(-0.03 * frame.edge, 1.04 * frame.edge)
    axis.set_xlabel("price: measured KL(base ‖ steered), nats per token")
    axis.set_ylabel("effect: steered − base" + (", percentage points" if record["measure"] == "share" else ""))


def _draw_line(axis: Any, candidates: Sequence[Mapping[str, Any]], frame: _Frame) -> None:
    """Draw the best effect up to each price, from the base on: steps, as no mixture of two candidates was measured."""
    front = [(price_of(c), effect_of(c)) for c in pareto_front(candidates)]
    lowering = [(p, e.value) for p, e in front if p is not None and e is not None and e.value < 0]
    if lowering:
        corners = [(0.0, 0.0), *((frame.x(p), frame.y(e)) for p, e in lowering)]
        corners.append((frame.edge, corners[-1][1]))
        axis.plot(*zip(*corners, strict=True), drawstyle="steps-post", color="#9aa3ad", linewidth=1.8, zorder=1)


def _draw_candidate(
    axis: Any, candidate: Mapping[str, Any], price: float, effect: Estimate, frame: _Frame, colour: str
) -> None:
    faint = 0.35 if candidate.get("status") not in RACED else 1.0
    x, y = frame.x(price), frame.y(effect.value)
    _draw_interval(axis, x, effect, frame, color=colour, alpha=0.45 * faint)
    hollow = candidate.get("scope") not in (None, "all")
    look = {"color": colour, "markerfacecolor": "white" if hollow else colour, "markeredgewidth": 1.5}
    marker = ">" if price > frame.edge else "o"
    axis.plot([x], [y], marker=marker, markersize=7, linestyle="none", alpha=faint, zorder=3, **look)
    if candidate.get("status") == "chosen":
        ring = {"markerfacecolor": "none", "markeredgecolor": INK, "markeredgewidth": 1.4}
        axis.plot([x], [y], marker="o", markersize=14, linestyle="none", zorder=4, **ring)
        _annotate(axis, "chosen", (x, y), (-14, -18), ha="right")


def _draw_interval(axis: Any, x: float, effect: Estimate, frame: _Frame, **look: Any) -> None:
    if effect.low is not None and effect.high is not None:
        axis.plot([x, x], [frame.y(effect.low), frame.y(effect.high)], linewidth=1.0, zorder=2, **look)


def _draw_confirmed(axis: Any, record: Mapping[str, Any], frame: _Frame, colours: Mapping[str, str]) -> None:
    """Draw the figures of the confirmation prompts: the chosen candidate and the methods compared with it."""
    for candidate in () if compared_in_search(record) else record.get("compared", ()):
        price, effect = price_of(candidate), effect_of(candidate)
        if price is not None and effect is not None:
            _draw_star(axis, price, effect, frame, colours[str(candidate.get("method"))])
    effect = estimate_of(record["effect"])
    chosen = chosen_of(record)
    if effect is None:
        return
    price = record["price"]["kl"]
    _draw_star(axis, price, effect, frame, colours[str(chosen.get("method"))] if chosen else INK)
    start, before = (None, None) if chosen is None else (price_of(chosen), effect_of(chosen))
    if start is not None and before is not None:
        path = [frame.x(start), frame.x(price)], [frame.y(before.value), frame.y(effect.value)]
        axis.plot(*path, color=INK, linewidth=1.0, linestyle=":", zorder=4)
    text = f"confirmed: {Scale.of(record).bare(effect.value)}"
    side = -1 if price > 0.8 * frame.edge else 1
    place = frame.x(price), frame.y(effect.value)
    _annotate(axis, text, place, (16 * side, 10), ha="left" if side > 0 else "right", weight="bold")


def _annotate(axis: Any, text: str, point: tuple[float, float], offset: tuple[float, float], **look: Any) -> None:
    """Write ``text`` beside a point, on white, so that it stays legible among other marks."""
    white = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
    axis.annotate(
        text, point, offset, textcoords="offset points", fontsize=8.5, color=INK, bbox=white, zorder=6, **look
    )


def _draw_star(axis: Any, price: float, effect: Estimate, frame: _Frame, colour: str) -> None:
    x = frame.x(price)
    _draw_interval(axis, x, effect, frame, color=colour, alpha=0.9)
    look = {"markerfacecolor": colour, "markeredgecolor": INK, "markeredgewidth": 0.8}
    axis.plot([x], [frame.y(effect.value)], marker="*", markersize=12.5, linestyle="none", zorder=5, **look)


def _draw_legend(axis: Any, colours: Mapping[str, str], points: Any, record: Mapping[str, Any]) -> None:
    shown = {str(c.get("method")) for c, _, _ in points}
    shown |= {str(c.get("method")) for c in record.get("compared", ()) if price_of(c) is not None}

    def mark(label: str, **look: Any) -> Any:
        return matplotlib().lines.Line2D(
            [], [], label=label, **{"linestyle": "none", "marker": "o", "markersize": 7, **look}
        )

    handles = [mark(method, color=colours[method]) for method in sorted(shown)]
    handles.append(mark("all positions", color=GREY))
    handles.append(mark("gated", color=GREY, markerfacecolor="white", markeredgewidth=1.5))
    if any(c.get("status") not in RACED for c, _, _ in points):
        handles.append(mark("stopped early", color=GREY, alpha=0.35))
    handles.append(mark("confirmed", color=GREY, marker="*", markersize=12))
    handles.append(mark("Pareto front", color="#9aa3ad", marker="", linestyle="-", linewidth=1.8))
    # a figure that holds other axes too has no room of its own beside them
    alone = len(axis.figure.axes) == 1 and axis.figure.get_constrained_layout()
    if alone:
        axis.figure.legend(handles=handles, frameon=False, loc="outside right upper", fontsize=8)
    else:
        axis.legend(handles=handles, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8)
