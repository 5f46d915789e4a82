"""Names beside the points of a figure, kept apart from each other and joined to their points by thin lines."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Box", "around", "overlap_of", "place_names"]

Box = tuple[float, float, float, float]
"""Left, bottom, right and top, in points of paper."""

_FAR = 0.35
"""The price of a point of distance, in square points of overlap."""
_STEPS = 12
"""At how many places the line from a point to its name is checked."""
_ROUNDS = 4
"""How often every name is placed again, with the others where they were."""


def place_names(
    axis: Any,
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    *,
    radii: Sequence[float],
    line: Sequence[tuple[float, float]] = (),
    size: float = 8.0,
) -> None:
    """Write a name beside each point: near it, but off markers, other names, a line and the edge.

    Draw the figure first: only then the positions on paper are known.

    Parameters
    ----------
    axis : matplotlib axes
    points, names : sequences of equal length
    radii : sequence of float
        The radius of each marker in points of paper.
    line : sequence of points
        The corners of a line of horizontal and vertical pieces.
    size : float
        The size of the font.

    Guarantees
    ----------
    Names of crowded points do not overlap (test_names_of_crowded_points_keep_apart).
    """
    scale = 72 / axis.get_figure().dpi
    pixels, corners = (
        axis.transData.transform(np.asarray(places, dtype=np.float64).reshape(-1, 2)) * scale
        for places in (points, line)
    )
    frame = axis.get_window_extent()
    edges = (frame.x0 * scale, frame.y0 * scale, frame.x1 * scale, frame.y1 * scale)
    markers = [_Marker(x, y, r) for (x, y), r in zip(pixels.tolist(), radii, strict=True)]
    pieces = [_piece(start, end) for start, end in itertools.pairwise(corners)]
    placed: dict[int, _Place] = {}
    for _ in range(_ROUNDS):
        for i, (marker, name) in enumerate(zip(markers, names, strict=True)):
            others = [other.box for other in markers if other is not marker]
            others += [*pieces, *(place.box for j, place in placed.items() if j != i)]
            placed[i] = _best(marker, _extent(name, size), others, edges)
    for i, place in placed.items():
        _write(axis, names[i], points[i], place, radii[i], size)


class _Marker(NamedTuple):
    """The centre and the radius of a marker."""

    x: float
    y: float
    radius: float

    @property
    def box(self) -> Box:
        return around(self.x, self.y, 2 * self.radius, 2 * self.radius)


class _Place(NamedTuple):
    """Where a name may stand: its centre, counted from its point, and its box."""

    dx: float
    dy: float
    box: Box


def _extent(name: str, size: float) -> tuple[float, float]:
    return 0.56 * size * len(name) + 2, 1.15 * size


def _piece(start: Any, end: Any) -> Box:
    (left, low), (right, high) = np.minimum(start, end), np.maximum(start, end)
    return left - 2, low - 2, right + 2, high + 2


def _best(marker: _Marker, extent: tuple[float, float], others: Sequence[Box], edges: Box) -> _Place:
    return min(_candidates(marker, *extent), key=lambda place: _price(place, marker, others, edges))


def _candidates(marker: _Marker, width: float, height: float) -> Iterator[_Place]:
    """Yield the places of a name around its marker, the nearest first."""
    for gap in (2.0, 6.0, 12.0, 20.0, 30.0, 42.0, 56.0):
        for step in range(16):
            across, up = math.cos(math.pi * step / 8), math.sin(math.pi * step / 8)
            dx = across * (marker.radius + gap) + _sign(across) * width / 2
            dy = up * (marker.radius + gap) + _sign(up) * height / 2
            yield _Place(dx, dy, around(marker.x + dx, marker.y + dy, width, height))


def _sign(value: float) -> float:
    return 0.0 if abs(value) < 0.1 else math.copysign(1.0, value)


def _price(place: _Place, marker: _Marker, others: Sequence[Box], edges: Box) -> float:
    """Return what is wrong with a place: the area that is covered or cut off, what its line crosses, and its distance.

    A place may not be on its own marker, but the line to it begins there.
    """
    left, bottom, right, top = place.box
    cut = (right - left) * (top - bottom) - overlap_of(place.box, [edges])
    across = max(abs(place.dx) - (right - left) / 2, 0.0)
    up = max(abs(place.dy) - (top - bottom) / 2, 0.0)
    far = max(math.hypot(across, up) - marker.radius, 0.0)
    steps = (
        around(marker.x + place.dx * t / _STEPS, marker.y + place.dy * t / _STEPS, 3, 3) for t in range(_STEPS + 1)
    )
    crossed = sum(overlap_of(step, others) for step in steps)
    return 4 * overlap_of(place.box, [marker.box, *others]) + 4 * cut + crossed + _FAR * far * math.sqrt(far)


def _write(axis: Any, name: str, point: tuple[float, float], place: _Place, radius: float, size: float) -> None:
    line = {"arrowstyle": "-", "color": "#8a939d", "linewidth": 0.6, "shrinkA": 0, "shrinkB": radius}
    beside = {"xytext": (place.dx, place.dy), "textcoords": "offset points", "ha": "center", "va": "center"}
    written = axis.annotate(name, point, arrowprops=line, zorder=6, **beside)
    written.set(fontsize=size, color="#20262d", in_layout=False)


def around(x: float, y: float, width: float, height: float) -> Box:
    """Return the box of that size around a centre."""
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def overlap_of(box: Box, taken: Sequence[Box]) -> float:
    """Return the summed area that a box shares with others."""
    wide = (min(box[2], other[2]) - max(box[0], other[0]) for other in taken)
    high = (min(box[3], other[3]) - max(box[1], other[1]) for other in taken)
    return sum(max(w, 0.0) * max(h, 0.0) for w, h in zip(wide, high, strict=True))
