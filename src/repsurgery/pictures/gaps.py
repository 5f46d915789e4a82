"""Gaps before and after steering: what is left of each, in percent of the gap before."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from repsurgery.cards import change, line, shortened
from repsurgery.pictures.style import COLOURS, GREY, INK, axes

__all__ = ["Gap", "draw_gaps"]

WIDEST = 200.0
"""Gaps that grew beyond this percentage end in an arrow; one huge gap must not make the others invisible."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A measure by its name, before and after steering, of one or several classes."""

    name: str
    before: Sequence[float]
    after: Sequence[float]

    def left(self) -> list[float]:
        """Return the percentage of each gap that is left: 0 where there never was one, infinite where one opened."""
        pairs = zip(self.before, self.after, strict=True)
        return [100 * a / b if b > 0 else 0.0 if a == 0 else math.inf for b, a in pairs]

    @property
    def worst(self) -> int:
        """The class of which most is left."""
        return max(range(len(self.after)), key=lambda i: (self.left()[i], self.after[i]))


def draw_gaps(gaps: Sequence[Gap], *, title: str, method: str, ax: Any = None) -> Any:
    """Draw one bar for each gap, the worst of its classes, and a dot for each class; return the axes."""
    colour = COLOURS.get(method, COLOURS["mean"])
    with axes(ax, size=(7.4, 1.3 + 0.42 * len(gaps))) as ax:
        edge = min(WIDEST, max([100.0, *(left for gap in gaps for left in gap.left() if math.isfinite(left))]))
        for y, gap in enumerate(gaps):
            _draw_gap(ax, y, gap, edge, colour)
        ax.set_yticks(range(len(gaps)), [gap.name for gap in gaps])
        ax.set_ylim(len(gaps) - 0.4, -0.6)
        ax.set_xlim(0, 1.04 * edge)
        ax.set_xlabel("left of the gap before steering, %")
        ax.set_title(shortened(line(title), 80), fontsize=10, loc="left")
        ax.tick_params(axis="y", length=0)
        return ax


def _draw_gap(ax: Any, y: int, gap: Gap, edge: float, colour: str) -> None:
    left, worst = gap.left(), gap.worst
    shown = [min(value, edge) for value in left]
    ax.barh(y, 100, height=0.56, facecolor="#eef1f4", edgecolor="#c7cdd4", linewidth=0.8, zorder=1)
    ax.barh(y, shown[worst], height=0.56, color=colour, alpha=0.85, zorder=2)
    if len(left) > 1:
        ax.plot(shown, [y] * len(left), "o", color=INK, markersize=3, alpha=min(1.0, 0.15 + 6 / len(left)), zorder=3)
    if left[worst] > edge:
        ax.plot([1.015 * edge], [y], marker=">", color=colour, markersize=8, zorder=4, clip_on=False)
    white = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1.2}
    text = f"{change(gap.before[worst], gap.after[worst])}  ({_percent(left[worst])})"
    ax.annotate(
        text,
        (1, y),
        (8, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=GREY,
        bbox=white,
        annotation_clip=False,
    )


def _percent(left: float) -> str:
    if not math.isfinite(left):
        return "new"
    if left >= 1000:
        return f"{left / 100:,.3g} times"
    return f"{left:.0f} %" if left >= 1 or left == 0 else "below 1 %"
