"""Figures of a toxicity study as SVG text: the trade-off, curves over strength, shifts prompt by prompt."""

from collections.abc import Mapping, Sequence
from typing import Any

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.drawing import (
    GREY,
    SPARE_COLOURS,
    STYLE,
    colour_of,
    draw_curve,
    matplotlib,
    place_labels,
    set_log_ticks,
    svg,
)
from repsurgery.studies.common.report.numbers import word
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.ablation import series
from repsurgery.studies.toxicity.report.columns import CHOICES, EMT, WORD_PERPLEXITY, leading, toxicity_axis, values_of
from repsurgery.studies.toxicity.report.rivals import is_rival

__all__ = [
    "damage_measure",
    "is_wide",
    "line_styles",
    "plot_shifts",
    "plot_strengths",
    "plot_tradeoff",
]

_SHIFTS = 6
"""The largest number of configurations in one figure of lines."""
_CURVE = 3
"""The smallest number of points that make a curve."""
_WIDE = 5.0
"""The ratio of the largest to the smallest value above which the scale is logarithmic."""
_NEAR = 1.5
"""The second panel ends here: a model with more than 1.5 times the perplexity of the base is hardly usable."""
_LONGEST = 44
"""The largest number of characters of a name in a legend."""
_MARKERS = {"last": "o", "tokens": "^", "on-policy": "D"}
_LABELS = {
    WORD_PERPLEXITY: "how unlikely the model finds WikiText (word perplexity)",
    "perplexity": "how unlikely a judge finds the texts (perplexity)",
}


def damage_measure(record: ToxicityRecord) -> str:
    """Return what toxicity is drawn against: WikiText's word perplexity, or without it that of the continuations."""
    measured = [c for c in record.configurations if WORD_PERPLEXITY in c.measures]
    return WORD_PERPLEXITY if len(measured) > 1 else "perplexity"


def plot_tradeoff(record: ToxicityRecord, scorer: str) -> str | None:
    """Return toxicity against damage, a numbered point for each configuration; None with fewer than two points.

    If the damage varies so much that its scale is logarithmic, a second panel shows the neighbourhood of the base.
    """
    axes = damage_measure(record), f"{scorer}.{EMT}"
    numbered = [(str(i), c) for i, c in enumerate(record.configurations, 1) if set(axes) <= c.measures.keys()]
    if len(numbered) < 2:
        return None
    near = _near_base(numbered, axes[0])
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(10.8, max(4.6, 0.19 * len(numbered) + 0.6)), layout="constrained")
        panels = figure.subplots(1, 2 if near else 1, sharey=True, squeeze=False)[0]
        if is_wide(values := [c.measures[axes[0]].value for _, c in numbered]):
            panels[0].set_xscale("log")
            set_log_ticks(panels[0].xaxis, values)
        for panel, shown in zip(panels, (numbered, near), strict=False):
            _tradeoff(panel, shown, *axes)
            _dress(panel, _LABELS[axes[0]], toxicity_axis(scorer) if panel is panels[0] else "")
        if near:
            panels[1].set_title(f"up to {_NEAR:g} times the base", fontsize=9)
        panels[0].set_ylim(bottom=0)
        figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside right upper", fontsize=8)
        figure.draw_without_rendering()
        for panel, shown in zip(panels, (numbered, near), strict=False):
            places = [(c.measures[axes[0]].value, c.measures[axes[1]].value) for _, c in shown]
            place_labels(panel, places, [number for number, _ in shown])
        return svg(figure)


def _near_base(numbered: Sequence[tuple[str, Configured]], cost: str) -> list[tuple[str, Configured]]:
    values = [c.measures[cost].value for _, c in numbered]
    base = next((c.measures[cost].value for _, c in numbered if c.name == "base"), None)
    if base is None or not is_wide(values):
        return []
    return [(number, c) for number, c in numbered if c.measures[cost].value <= _NEAR * base]


def is_wide(values: Sequence[float], *, ratio: float = _WIDE) -> bool:
    """Return whether positive values spread over more than ``ratio``, so that their scale is logarithmic."""
    return min(values) > 0 and max(values) / min(values) > ratio


def _tradeoff(axis: Any, numbered: Sequence[tuple[str, Configured]], cost: str, toxicity: str) -> None:
    steered = [c for _, c in numbered if c.name != "base"]
    for group in (*series(steered, "strength"), *series(steered, "kl")):
        ordered = [(c.measures[cost].value, c.measures[toxicity].value) for c in group]
        axis.plot(*zip(*ordered, strict=True), color=_colour(group[0]), linewidth=0.9, alpha=0.5, zorder=1)
    for number, c in numbered:
        _point(axis, f"{number}  {_short(c.name)}", c, c.measures[cost].value, c.measures[toxicity])
    axis.margins(0.1)


def _point(axis: Any, label: str, c: Configured, x: float, toxicity: Estimate) -> None:
    if toxicity.low is not None and toxicity.high is not None:
        axis.plot([x, x], [toxicity.low, toxicity.high], color=_colour(c), linewidth=0.9, alpha=0.3, zorder=2)
    axis.plot([x], [toxicity.value], linestyle="none", label=label, zorder=3, **_marks(c))


def _dress(axis: Any, across: str, up: str) -> None:
    axis.grid(color="#e3e7eb", linewidth=0.8)
    axis.set_xlabel(across)
    axis.set_ylabel(up)


def plot_strengths(record: ToxicityRecord) -> str | None:
    """Return toxicity and perplexity against strength, a line for each series; None if none has three points."""
    cost, toxicity = damage_measure(record), f"{leading(record)}.{EMT}"
    steered = [c for c in record.configurations if c.name != "base" and toxicity in c.measures]
    groups = [group for group in series(steered, "strength") if len(values_of(group, "strength")) >= _CURVE]
    if not groups:
        return None
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(9.6, 3.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        for look, group, label in zip(line_styles([g[0] for g in groups]), groups, _names(groups), strict=True):
            _curve(left, group, toxicity, look, label)
            _curve(right, group, cost, look, label)
        for axis, name in ((left, toxicity), (right, cost)):
            _level(axis, record.configurations[0].measures.get(name))
        left.set_ylim(bottom=0)
        costs = [c.measures[cost].value for g in groups for c in g if cost in c.measures]
        if costs and is_wide(costs):
            right.set_yscale("log")
            set_log_ticks(right.yaxis, costs)
        _dress(left, "strength", toxicity_axis(leading(record)))
        _dress(right, "strength", _LABELS[cost])
        figure.legend(*left.get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=2, fontsize=8)
        return svg(figure)


def _names(groups: Sequence[Sequence[Configured]]) -> list[str]:
    first = [group[0] for group in groups]
    names = _joined(first, ("method", "scope", "fit"))
    if len(set(names)) == len(names):
        return names
    return _joined(first, [name for name in CHOICES if name != "strength"])


def _joined(configurations: Sequence[Configured], names: Sequence[str]) -> list[str]:
    return [", ".join(word(c.choices[n]) for n in names if c.choices.get(n) is not None) for c in configurations]


def _curve(axis: Any, group: Sequence[Configured], name: str, look: Mapping[str, Any], label: str) -> None:
    points = ((c.choices["strength"], c.measures[name]) for c in group if name in c.measures)
    draw_curve(axis, points, shade=0.1, ms=4, label=label, **look)


def _level(axis: Any, base: Estimate | None) -> None:
    if base is not None:
        axis.axhline(base.value, color=GREY, linewidth=1.0, linestyle=":", label="base")


def plot_shifts(record: ToxicityRecord) -> str | None:
    """Return each prompt's shift of its highest toxicity against the base, sorted; None if there are none."""
    scorer = leading(record)
    shifts = [(c, _shifts(record.configurations[0], c, scorer)) for c in record.configurations[1:]]
    lines = [(c, values) for c, values in shifts if len(values) > 1][:_SHIFTS]
    if not lines:
        return None
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(9.6, 3.9), layout="constrained")
        axis = figure.subplots()
        axis.axhline(0, color=GREY, linewidth=1.0, linestyle=":")
        for look, (c, values) in zip(line_styles([c for c, _ in lines]), lines, strict=True):
            shares = [(i + 0.5) / len(values) for i in range(len(values))]
            axis.plot(shares, values, linewidth=1.5, label=_short(c.name), **{**look, "marker": ""})
        axis.set_xlim(0, 1)
        axis.xaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0))
        _dress(axis, "share of prompts, the most improved first", f"change of the highest toxicity by {scorer}")
        figure.legend(*axis.get_legend_handles_labels(), frameon=False, loc="outside right center", fontsize=8)
        return svg(figure)


def _shifts(base: Configured, c: Configured, scorer: str) -> list[float]:
    before, after = base.maxima.get(scorer, []), c.maxima.get(scorer, [])
    if len(before) != len(after):
        return []
    return sorted(b - a for a, b in zip(before, after, strict=True) if a is not None and b is not None)


def _colour(c: Configured) -> str:
    method = c.choices.get("method")
    return GREY if method is None else colour_of(str(method))


def _marker(c: Configured) -> str:
    if is_rival(c):
        return "X"
    return "s" if c.name == "base" else _MARKERS.get(str(c.choices.get("fit", "last")), "v")


def _marks(c: Configured) -> dict[str, Any]:
    """Return the look of a point: colour by method, marker by fit, hollow if only selected vectors are steered."""
    hollow = c.choices.get("scope") == "selective"
    return {
        "marker": _marker(c),
        "color": _colour(c),
        "markerfacecolor": "white" if hollow else _colour(c),
        "markersize": 7,
        "markeredgewidth": 1.5,
    }


def line_styles(configurations: Sequence[Configured]) -> list[dict[str, Any]]:
    """Return the looks of lines: dashed if only selected vectors are steered; all different while colours last."""
    looks: list[dict[str, Any]] = []
    spare = iter(SPARE_COLOURS)
    for c in configurations:
        style = "--" if c.choices.get("scope") == "selective" else "-"
        look = {"color": _colour(c), "linestyle": style, "marker": _marker(c)}
        if look in looks:
            look["color"] = next(spare, GREY)
        looks.append(look)
    return looks


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
