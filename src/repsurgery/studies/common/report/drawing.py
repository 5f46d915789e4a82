"""What all figures share: colours, style, curves, labels, and SVG text drawn by matplotlib without a display."""

import io
import math
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from repsurgery.pictures.style import COLOURS, GREY, SPARE_COLOURS, STYLE, matplotlib
from repsurgery.studies.common.estimate import Estimate

__all__ = [
    "COLOURS",
    "GREY",
    "SPARE_COLOURS",
    "STYLE",
    "colour_of",
    "draw_curve",
    "legend_below",
    "matplotlib",
    "place_labels",
    "set_log_ticks",
    "svg",
]


def colour_of(method: str) -> str:
    """Return the colour of a method; an unknown name always gets the same of the spare colours."""
    return COLOURS.get(method) or SPARE_COLOURS[zlib.crc32(method.encode()) % len(SPARE_COLOURS)]


def svg(figure: Any) -> str:
    """Return a figure as SVG text, without date and creator, which would differ between equal records."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


def set_log_ticks(axis: Any, values: Sequence[float]) -> None:
    """Give a logarithmic axis plain numbers at few places, however far the positive ``values`` spread.

    Guarantees
    ----------
    No two numbers overlap, whether the values are within one decade or twenty
    (test_numbers_on_a_log_axis_do_not_overlap).
    """
    ticker = matplotlib().ticker
    decades = math.log10(max(values) / min(values))
    steps = (1, 1.5, 2, 3, 5, 7) if decades < 1 else (1, 2, 5) if decades < 2 else (1, 3) if decades < 3 else (1,)
    axis.set_major_locator(ticker.LogLocator(subs=steps, numticks=6))
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _short_number(value)))


def _short_number(value: float) -> str:
    return f"{value:,g}" if value < 1e5 else f"{value:.2g}".replace("e+0", "e").replace("e+", "e")


def draw_curve(axis: Any, points: Iterable[tuple[float, Estimate]], *, shade: float, **look: Any) -> None:
    """Draw a line through ``points`` in order, with a band of opacity ``shade`` over their intervals."""
    listed = list(points)
    axis.plot([x for x, _ in listed], [y.value for _, y in listed], linewidth=1.6, **look)
    bounds = [(x, y.low, y.high) for x, y in listed if y.low is not None and y.high is not None]
    if bounds:
        axis.fill_between(*zip(*bounds, strict=True), color=look["color"], alpha=shade, linewidth=0)


def legend_below(figure: Any) -> None:
    """Give a figure a legend below its axes, in as many columns as fit; the figure grows by the height of the legend.

    Guarantees
    ----------
    The legend is within the figure, however long its labels (test_a_legend_is_within_its_figure).
    """
    width, height = figure.get_size_inches()
    for columns in (3, 2, 1):
        legend = figure.legend(frameon=False, loc="outside lower center", ncols=columns)
        box = legend.get_window_extent()
        if box.width <= 0.97 * width * figure.dpi:
            break
        if columns > 1:
            legend.remove()
    figure.set_size_inches(width, height + box.height / figure.dpi)


def place_labels(axis: Any, points: Sequence[tuple[float, float]], labels: Sequence[str]) -> None:
    """Write a short label beside each point, on the side where it overlaps the fewest points and labels.

    Draw the figure first: only then the positions on paper are known.
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
