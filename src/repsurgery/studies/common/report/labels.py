"""Names beside the points of a figure, kept apart from each other and joined to their points by thin lines."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from repsurgery.arrays import Matrix, Vector

__all__ = ["place_names"]

_GAPS = (2.0, 6.0, 12.0, 20.0, 30.0, 42.0, 56.0)
"""Distances between a marker and its name that are tried, in points of paper."""
_DIRECTIONS = np.exp(2j * np.pi * np.arange(16) / 16)
_FAR = 0.35
"""What distance costs, in square points of overlap."""
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
    centres, corners = (
        axis.transData.transform(np.asarray(places, dtype=np.float64).reshape(-1, 2)) * scale
        for places in (points, line)
    )
    edges = np.asarray(axis.get_window_extent().extents).reshape(1, 4) * scale
    markers = _around(centres, np.repeat(2 * np.asarray(radii)[:, None], 2, axis=1))
    pieces = [np.r_[np.minimum(a, b) - 2, np.maximum(a, b) + 2] for a, b in itertools.pairwise(corners)]
    offsets, boxes = np.zeros_like(centres), np.full_like(markers, np.nan)
    for _ in range(_ROUNDS):
        for i, name in enumerate(names):
            placed = np.delete(boxes, i, axis=0)
            others = np.vstack([np.delete(markers, i, axis=0), *pieces, placed[~np.isnan(placed[:, 0])]])
            extent = np.array([0.56 * size * len(name) + 2, 1.15 * size])
            tried = _offsets(extent, radii[i])
            offsets[i] = tried[np.argmin(_prices(centres[i], radii[i], tried, extent, others, edges))]
            boxes[i] = _around(centres[i] + offsets[i], extent)
    for name, point, offset, radius in zip(names, points, offsets.tolist(), radii, strict=True):
        _write(axis, name, point, offset, radius, size)


def _offsets(extent: Vector, radius: float) -> Matrix:
    """Return the centres (n, 2) of a name around its point that are tried, the nearest first."""
    directions = np.stack([_DIRECTIONS.real, _DIRECTIONS.imag], axis=1)
    beside = np.where(np.abs(directions) < 0.1, 0.0, np.sign(directions)) * extent / 2
    return np.vstack([directions * (radius + gap) + beside for gap in _GAPS])


def _prices(centre: Vector, radius: float, offsets: Matrix, extent: Vector, others: Matrix, edges: Matrix) -> Vector:
    """Return what is wrong with each place (n,): what it covers, is cut off, what its line crosses, its distance.

    A name may not lie on its own marker, but the line to it begins there.
    """
    boxes = _around(centre + offsets, extent)
    own = _around(centre[None], np.full(2, 2 * radius))
    covered = _overlaps(boxes, np.vstack([own, others]))
    cut = extent.prod() - _overlaps(boxes, edges)
    steps = np.linspace(0, 1, 13)[:, None, None] * offsets
    crossed = _overlaps(_around(centre + steps.reshape(-1, 2), np.full(2, 3.0)), others).reshape(len(steps), -1).sum(0)
    outside = np.maximum(np.abs(offsets) - extent / 2, 0)
    far = np.maximum(np.hypot(outside[:, 0], outside[:, 1]) - radius, 0)
    prices: Vector = 4 * covered + 4 * cut + crossed + _FAR * far**1.5
    return prices


def _around(centres: Matrix, extents: Matrix) -> Matrix:
    """Return left, bottom, right and top (n, 4) of boxes."""
    return np.concatenate([centres - extents / 2, centres + extents / 2], axis=-1)


def _overlaps(boxes: Matrix, others: Matrix) -> Vector:
    """Return the area (n,) that each box shares with all others together."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    areas: Vector = np.maximum(high - low, 0).prod(axis=2).sum(axis=1)
    return areas


def _write(
    axis: Any, name: str, point: tuple[float, float], offset: Sequence[float], radius: float, size: float
) -> None:
    line = {"arrowstyle": "-", "color": "#8a939d", "linewidth": 0.6, "shrinkA": 0, "shrinkB": radius}
    beside = {"xytext": tuple(offset), "textcoords": "offset points", "ha": "center", "va": "center"}
    written = axis.annotate(name, point, arrowprops=line, zorder=6, **beside)
    written.set(fontsize=size, color="#20262d", in_layout=False)
