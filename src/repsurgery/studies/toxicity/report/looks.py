"""How configurations look: colour by method, filling by scope, marker by fit, labels out of each other's way."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from repsurgery.studies.common.report.drawing import GREY, method_colour
from repsurgery.studies.toxicity.record import Configured

__all__ = ["colour_of", "dashes_of", "marker_of", "marks", "place_labels", "short"]

_MARKERS = {"last": "o", "tokens": "^", "on-policy": "D"}
_LONGEST = 44
_OTHER = ("#7a4f2a", "#5d5fb0", "#9a9a2e", "#d17fb3", "#3b3b6d")
"""For lines that would look like one already drawn."""


def colour_of(c: Configured) -> str:
    """Return the method's colour."""
    return method_colour(c.choices["method"]) if "method" in c.choices else GREY


def marker_of(c: Configured) -> str:
    """Return the fit's marker; the base is a square."""
    return "s" if c.name == "base" else _MARKERS.get(str(c.choices.get("fit", "last")), "v")


def marks(c: Configured) -> dict[str, Any]:
    """Return a point's look: hollow where only selected vectors are steered."""
    hollow = c.choices.get("scope") == "selective"
    return {
        "marker": marker_of(c),
        "color": colour_of(c),
        "markerfacecolor": "white" if hollow else colour_of(c),
        "markersize": 7,
        "markeredgewidth": 1.5,
    }


def dashes_of(configurations: Sequence[Configured]) -> list[dict[str, Any]]:
    """Return the looks of lines: dashed where only selected vectors are steered; no two alike while colours last."""
    found: list[dict[str, Any]] = []
    spare = iter(_OTHER)
    for c in configurations:
        style = "--" if c.choices.get("scope") == "selective" else "-"
        look = {"color": colour_of(c), "linestyle": style, "marker": marker_of(c)}
        if look in found:
            look["color"] = next(spare, GREY)
        found.append(look)
    return found


def short(name: str) -> str:
    """Return a name that leaves room for the figure beside its legend."""
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"


def place_labels(axis: Any, points: Sequence[tuple[float, float]], labels: Sequence[str]) -> None:
    """Write a short label beside each point, on the side where it meets fewest points and labels.

    The figure must have been drawn: only then its places on paper are known.
    """
    figure = axis.get_figure()
    pixels = axis.transData.transform(np.asarray(points, dtype=np.float64).reshape(-1, 2)) * 72 / figure.dpi
    taken = [_box(x, y, 8, 8) for x, y in pixels]
    for (x, y), point, label in zip(pixels, points, labels, strict=True):
        width = 4.6 * len(label)
        places = [(r * np.cos(a) * (1 + width / 16), r * np.sin(a)) for r in (9, 13, 18, 24) for a in _ANGLES]
        dx, dy = min(places, key=lambda place: _overlap(_box(x + place[0], y + place[1], width, 8), taken))
        taken.append(_box(x + dx, y + dy, width, 8))
        written = axis.annotate(label, point, (dx, dy), textcoords="offset points", ha="center", va="center")
        written.set(fontsize=7.5, color="#333a42", in_layout=False)


_ANGLES = tuple(np.pi * k / 4 for k in (0, 1, 2, 7, 3, 4, 6, 5))


def _box(x: float, y: float, width: float, height: float) -> tuple[float, float, float, float]:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _overlap(box: tuple[float, float, float, float], taken: Sequence[tuple[float, float, float, float]]) -> float:
    wide = (min(box[2], other[2]) - max(box[0], other[0]) for other in taken)
    high = (min(box[3], other[3]) - max(box[1], other[1]) for other in taken)
    return sum(max(w, 0.0) * max(h, 0.0) for w, h in zip(wide, high, strict=True))
