"""Spectra: singular values of a map, or the variances along the principal directions of rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from repsurgery.arrays import Vector
from repsurgery.cards import line, shortened
from repsurgery.pictures.style import COLOURS, GREY, SPARE_COLOURS, axes, matplotlib

__all__ = ["draw_spectra"]

MOST_CURVES = 8
NOTHING = 1e-14
"""A value below this share of the largest one is zero up to rounding."""
WIDE = 30.0
"""From this ratio of the largest to the smallest value on, the axis is logarithmic."""


def draw_spectra(
    spectra: Mapping[str, Vector],
    *,
    title: str,
    ylabel: str,
    unchanged: float | None = None,
    others: int = 0,
    ax: Any = None,
) -> Any:
    """Draw sorted values, one curve for each name, and return the axes.

    Parameters
    ----------
    spectra : mapping of name to (d,) array
    title, ylabel : str
    unchanged : float or None
        The value of a direction that a map leaves as it is, drawn as a line.
    others : int
        How many more curves there would be.
    ax : Axes or None
    """
    colours = [COLOURS["mean"], COLOURS["mimic"], COLOURS["leace"], COLOURS["trace"], COLOURS["diagonal"]]
    colours += list(SPARE_COLOURS)
    with axes(ax, size=(6.4, 3.6)) as ax:
        curves = {name: np.sort(np.abs(values))[::-1] for name, values in spectra.items()}
        top = max((float(values.max(initial=0.0)) for values in curves.values()), default=0.0)
        positive = [values[values > NOTHING * top] for values in curves.values()]
        # on a logarithmic axis, zeros have no place: they are named in the legend instead
        least = min((float(values[-1]) for values in positive if len(values)), default=top)
        logarithmic = top > WIDE * least > 0
        for (name, values), shown, colour in zip(curves.items(), positive, colours * len(curves), strict=False):
            drawn = shown if logarithmic else values
            missing = len(values) - len(shown)
            label = name + (f" ({missing:,} of {len(values):,} are zero)" if missing and logarithmic else "")
            few = len(drawn) <= 64
            ax.plot(
                np.arange(1, len(drawn) + 1),
                drawn,
                color=colour,
                linewidth=1.4,
                label=shortened(line(label), 60).strip(),
                marker="o" if few else None,
                markersize=3.5,
            )
        if unchanged is not None:
            ax.axhline(unchanged, color=GREY, linewidth=1.0, linestyle="--", label="unchanged", zorder=1.5)
        _dress(ax, logarithmic=logarithmic, top=top, d=max((len(v) for v in curves.values()), default=1))
        ax.set_ylabel(ylabel)
        ax.set_title(shortened(line(title), 80), fontsize=10, loc="left")
        if others:
            ax.plot([], [], linestyle="none", label=f"… and {others:,} more")
        if len(curves) > 1 or unchanged is not None or any(ax.get_legend_handles_labels()[1]):
            ax.legend(frameon=False, fontsize=8)
        return ax


def _dress(ax: Any, *, logarithmic: bool, top: float, d: int) -> None:
    ticker = matplotlib().ticker
    if logarithmic:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(ticker.LogLocator(numticks=7))
        ax.yaxis.set_minor_formatter(ticker.NullFormatter())
    else:
        ax.set_ylim(0, 1.08 * top if top > 0 else 1.0)
    ax.xaxis.set_major_locator(ticker.MaxNLocator(nbins=8, integer=True))
    ax.set_xlim(0.5, max(d, 2) + 0.5)
    ax.grid(color="#e3e7eb", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel("direction, from the largest value to the smallest")
