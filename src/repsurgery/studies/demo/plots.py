"""Figures as SVG text, drawn by matplotlib without a display."""

from typing import Any

import numpy as np

from repsurgery.studies.common.report.drawing import COLOURS, GREY, STYLE, matplotlib, svg
from repsurgery.studies.demo.record import Cloud, DemoRecord

__all__ = ["plot_clouds", "plot_tradeoff"]

_SOURCE, _TARGET = "#c8553d", "#2b6c99"


def plot_clouds(record: DemoRecord) -> str:
    """Return the held-out rows before and after each steering as one SVG, all panels on the same axes."""
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        columns = min(4, len(record.clouds))
        rows = -(-len(record.clouds) // columns)
        figure = mpl.figure.Figure(figsize=(2.6 * columns, 2.5 * rows + 0.4))
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axis in axes.flat[len(record.clouds) :]:
            axis.set_visible(False)
        for axis, cloud in zip(axes.flat, record.clouds, strict=False):
            _cloud(axis, cloud, record)
        _limits(axes[0, 0], record.clouds)
        figure.supxlabel("along the difference of the fitted class means", fontsize=9)
        figure.supylabel("first principal component of the rest", fontsize=9)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper right", ncols=2, frameon=False)
        figure.tight_layout(rect=(0, 0, 1, 0.95))
        return svg(figure)


def _cloud(axis: Any, cloud: Cloud, record: DemoRecord) -> None:
    for label, colour in ((record.source, _SOURCE), (record.target, _TARGET)):
        points = cloud.points[cloud.labels == label]
        axis.scatter(points[:, 0], points[:, 1], s=11, color=colour, alpha=0.55, linewidths=0, label=label)
        axis.plot(*points.mean(axis=0), marker="X", ms=9, mfc=colour, mec="white", mew=1.2)
    axis.set_title(cloud.title, fontsize=9)


def _limits(axis: Any, clouds: tuple[Cloud, ...]) -> None:
    # a few far points of one panel must not shrink all the others to a dot
    points = np.concatenate([cloud.points for cloud in clouds])
    low, high = np.quantile(points, 0.005, axis=0), np.quantile(points, 0.995, axis=0)
    margin = 0.12 * (high - low)
    axis.set_xlim(low[0] - margin[0], high[0] + margin[0])
    axis.set_ylim(low[1] - margin[1], high[1] + margin[1])


def plot_tradeoff(record: DemoRecord) -> str:
    """Return toxicity against perplexity as SVG: down and to the left is better."""
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(7.4, 3.8))
        axis = figure.subplots()
        for o in record.outcomes:
            filled = o.scope != "selective"
            colour = COLOURS.get(o.method, GREY)
            axis.scatter(
                o.perplexity,
                o.expected_max_toxicity,
                s=70,
                marker="s" if o.scope == "none" else "o",
                facecolors=colour if filled else "white",
                edgecolors=colour,
                linewidths=1.6,
                label=o.name,
                zorder=3,
            )
        axis.set_xscale("log")
        axis.margins(0.12)
        axis.set_ylim(bottom=0)
        axis.grid(color="#e3e7eb", linewidth=0.8)
        axis.set_xlabel("perplexity under the unsteered model (log scale)")
        axis.set_ylabel("expected maximum toxicity")
        # within a decade a log axis has hardly a major tick, so a few minor ones carry numbers too
        plain = mpl.ticker.FuncFormatter(lambda x, _: f"{x:g}" if f"{x:e}"[0] in "1235" else "")
        axis.xaxis.set_major_formatter(plain)
        axis.xaxis.set_minor_formatter(plain)
        axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.tight_layout()
        return svg(figure)
