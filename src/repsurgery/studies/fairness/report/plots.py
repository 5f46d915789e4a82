"""Figures of a fairness study as SVG text: neighbours, cosine similarities, measures against the ratio."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.drawing import GREY, STYLE, colour_of, draw_curve, matplotlib, svg
from repsurgery.studies.common.report.numbers import fraction
from repsurgery.studies.common.report.published import LLAMA, TaskMeasure, published
from repsurgery.studies.fairness.record import CosineThumbnail, Setting, StudyRecord
from repsurgery.studies.fairness.report.columns import measured_as, steered
from repsurgery.studies.fairness.report.verdicts import published_study, same_model

__all__ = ["AXES", "plot_cosines", "plot_neighbours", "plot_ratios"]

AXES: Mapping[TaskMeasure, str] = {
    "tpr_gap": "difference between the groups (TPR gap RMS)",
    "accuracy": "share of rows classified correctly (accuracy)",
}
"""What the measures are, for the axes of figures."""
_DASHED = {"color": GREY, "linestyle": (0, (4, 3)), "linewidth": 1.0}


def plot_neighbours(record: StudyRecord) -> str | None:
    """Return the share of same-concept neighbours against k, one panel for each setting; None if there are none."""
    settings = [s for s in record.settings if any(r.neighbours for r in steered(s))]
    if not settings:
        return None
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        columns = min(3, len(settings))
        rows = -(-len(settings) // columns)
        size = (7.4, 3.8) if len(settings) == 1 else (3.4 * columns, 2.6 * rows)
        figure = mpl.figure.Figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axis in axes.flat[len(settings) :]:
            axis.set_visible(False)
        for axis, setting in zip(axes.flat, settings, strict=False):
            _neighbours(axis, record, setting)
        ks = sorted({int(k) for s in settings for r in steered(s) for k in r.neighbours})
        axes[0, 0].set_xscale("log", base=2)
        axes[0, 0].set_xticks(ks, [str(k) for k in ks])
        figure.supxlabel("number k of nearest neighbours (log scale)", fontsize=9)
        figure.supylabel("share of neighbours in the same group", fontsize=9)
        _legend(figure, axes[0, 0])
        return svg(figure)


def _neighbours(axis: Any, record: StudyRecord, setting: Setting) -> None:
    for result in steered(setting):
        if result.neighbours:
            _line(axis, result.method, {float(k): share for k, share in result.neighbours.items()})
    axis.axhline(setting.chance, color=GREY, linewidth=1.0, linestyle=":", label="chance")
    if same_model(record) == LLAMA and record.experiment == "bios":
        _published(axis, {float(k): shares for k, shares in published().neighbours.items()})
    axis.grid(color="#e3e7eb", linewidth=0.8)
    if setting.ratio is not None:
        axis.set_title(f"ratio {fraction(setting.ratio, digits=2)}", fontsize=9)


def plot_ratios(record: StudyRecord, measure: TaskMeasure) -> str | None:
    """Return a measure against the ratio, a line for each method; None with fewer than two ratios."""
    points: dict[str, dict[float, Estimate]] = {}
    for setting in record.settings:
        for result in steered(setting):
            if setting.ratio is not None and measured_as(record, measure) in result.measures:
                points.setdefault(result.method, {})[setting.ratio] = result.measures[measured_as(record, measure)]
    if len({ratio for line in points.values() for ratio in line}) < 2:
        return None
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(7.4, 3.8), layout="constrained")
        axis = figure.subplots()
        for method, line in points.items():
            _line(axis, method, line)
        if published_study(record) == "dialect":
            _published(
                axis,
                {
                    ratio: {method: cell[measure].taken for method, cell in cells.items()}
                    for ratio, cells in published().dialect.items()
                },
            )
        axis.grid(color="#e3e7eb", linewidth=0.8)
        axis.set_xlabel("how far concept and label are correlated (ratio)")
        axis.set_ylabel(AXES[measure])
        if measure == "tpr_gap":
            axis.set_ylim(bottom=0)
        _legend(figure, axis)
        return svg(figure)


def _line(axis: Any, method: str, points: Mapping[float, Estimate]) -> None:
    draw_curve(axis, sorted(points.items()), shade=0.13, color=colour_of(method), marker="o", ms=3.5, label=method)


def _published(axis: Any, shares: Mapping[float, Mapping[str, float]]) -> None:
    # the colour shows the method and the dashes show the source; the legend names the source once
    for method in ("base", "mean", "mimic"):
        xs = sorted(x for x in shares if method in shares[x])
        axis.plot(xs, [shares[x][method] for x in xs], **{**_DASHED, "color": colour_of(method), "alpha": 0.6})
    axis.plot([], [], label=f"published, {LLAMA}", **_DASHED)


def _legend(figure: Any, axis: Any) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside right center")


def plot_cosines(setting: Setting) -> str | None:
    """Return the cosine similarities before and after, all panels on one colour scale; None if there are none."""
    panels = [(result.method, result.cosine) for result in steered(setting) if result.cosine is not None]
    if not panels:
        return None
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        columns = min(4, len(panels))
        rows = -(-len(panels) // columns)
        figure = mpl.figure.Figure(figsize=(2.1 * columns + 1.0, 2.5 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis in axes.flat:
            axis.set_axis_off()
        scale = _scale([thumbnail for _, thumbnail in panels])
        for axis, (method, thumbnail) in zip(axes.flat, panels, strict=False):
            image = _cosine(axis, method, thumbnail, scale)
        bar = figure.colorbar(image, ax=axes, shrink=0.8, label="cosine similarity")
        bar.outline.set_visible(False)
        return svg(figure)


def _scale(thumbnails: Sequence[CosineThumbnail]) -> tuple[float, float]:
    # the diagonal is always 1 and would take up most of the scale
    others = np.concatenate([one.matrix()[~np.eye(one.rows, dtype=bool)] for one in thumbnails])
    return float(others.min()), float(others.max())


def _cosine(axis: Any, method: str, thumbnail: CosineThumbnail, scale: tuple[float, float]) -> Any:
    axis.set_title(method, fontsize=9)
    means = f"within {fraction(thumbnail.within)}, between {fraction(thumbnail.between)}"
    axis.text(0.5, -0.03, means, transform=axis.transAxes, ha="center", va="top", fontsize=7.5, color=GREY)
    half = thumbnail.rows / 2 - 0.5
    axis.axhline(half, color="white", linewidth=0.7)
    axis.axvline(half, color="white", linewidth=0.7)
    return axis.imshow(thumbnail.matrix(), vmin=scale[0], vmax=scale[1], cmap="viridis", interpolation="nearest")
