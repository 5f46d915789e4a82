"""The TPR gap of every method at the same accuracies, as a table and as a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from repsurgery.studies.common.report.drawing import STYLE, colour_of, legend_below, matplotlib, svg
from repsurgery.studies.common.report.numbers import fraction
from repsurgery.studies.common.report.tables import Column, Table, table_of
from repsurgery.studies.fairness.record import MethodResult, Setting, StudyRecord, is_sweep
from repsurgery.studies.fairness.report.columns import measured_as, ratio_columns
from repsurgery.studies.fairness.report.plots import AXES

__all__ = ["Point", "curves", "equal_accuracy_table", "gap_at", "plot_equal_accuracy"]

DROPS = (0.0, 0.01, 0.02)
"""Losses of accuracy, relative to the base, at which gaps are compared."""
_CAPTION = (
    "Test split. The smallest gap at this accuracy or above it, on the curve through the base and the rows of a "
    "method, over strengths or alpha; random mixtures of two predictions reach the straight line between two rows. "
    "Lower is better. 'lowest': the row with the smallest gap. Points are chosen on the test split, without a test: "
    "a curve of more rows has more chances. Post-processing is given gold or predicted groups, or none (blind)."
)


@dataclass(frozen=True, slots=True)
class Point:
    """Accuracy and RMS TPR gap of one row."""

    accuracy: float
    gap: float
    name: str


_Row: TypeAlias = tuple[Setting, str, list[Point]]


def gap_at(points: Sequence[Point], accuracy: float) -> float | None:
    """Return the smallest gap of a mixture of two ``points`` with at least this ``accuracy``; None if none has it."""
    above = [p for p in points if p.accuracy >= accuracy]
    below = [p for p in points if p.accuracy < accuracy]
    gaps = [p.gap for p in above]
    for high in above:
        for low in below:
            share = (accuracy - low.accuracy) / (high.accuracy - low.accuracy)
            gaps.append(share * high.gap + (1 - share) * low.gap)
    return min(gaps, default=None)


def curves(record: StudyRecord, setting: Setting) -> dict[str, list[Point]]:
    """Return the points of each method, the base first among them; empty without rows of a post-processing."""
    accuracy, gap = measured_as(record, "accuracy"), measured_as(record, "tpr_gap")
    measured = [r for r in setting.methods if {accuracy, gap} <= r.measures.keys()]
    base = setting.method("base")
    if base not in measured or not any(is_sweep(r.method) for r in measured):
        return {}
    found: dict[str, list[Point]] = {}
    for result in measured:
        point = Point(result.measures[accuracy].value, result.measures[gap].value, result.method)
        if result is base:
            start = point
        else:
            found.setdefault(_family(result), []).append(point)
    return {family: [start, *points] for family, points in found.items()}


def equal_accuracy_table(record: StudyRecord) -> Table | None:
    """Return one row for each setting and method, one column for each loss of accuracy."""
    rows: list[_Row] = [
        (setting, family, points) for setting in record.settings for family, points in curves(record, setting).items()
    ]

    def at(drop: float) -> Column[_Row]:
        heading = (
            "at the base's accuracy" if drop == 0 else f"{100 * drop:g} points below".replace("1 points", "1 point")
        )
        return Column(heading, lambda row: fraction(gap_at(row[2], row[2][0].accuracy - drop)))

    ratios: list[Column[_Row]] = ratio_columns(record, lambda row: row[0])
    names: list[Column[_Row]] = [*ratios, Column("method", lambda row: row[1])]
    lowest: Column[_Row] = Column("lowest", lambda row: _lowest(row[2]))
    return table_of("TPR gap RMS at equal accuracy", names, [*map(at, DROPS), lowest], rows, _CAPTION)


def plot_equal_accuracy(record: StudyRecord) -> str | None:
    """Return the gap against the accuracy, a line for each method over its strengths or alphas; None without alphas."""
    drawn = next((found for setting in record.settings if (found := curves(record, setting))), None)
    if drawn is None or len(record.settings) > 1:
        return None
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(7.4, 4.6), layout="constrained")
        axis = figure.subplots()
        for family, points in drawn.items():
            look = {"color": colour_of(family), "linestyle": "--" if family.startswith(_POST) else "-"}
            line = points[1:] if family.startswith(_POST) else points  # calibrated, the largest alpha is not the base
            axis.plot([p.accuracy for p in line], [p.gap for p in line], marker="o", ms=3.5, label=family, **look)
        start = next(iter(drawn.values()))[0]
        axis.plot([start.accuracy], [start.gap], marker="s", ms=6, linestyle="", color=colour_of("base"), label="base")
        axis.grid(color="#e3e7eb", linewidth=0.8)
        axis.set_xlabel(AXES["accuracy"])
        axis.set_ylabel(AXES["tpr_gap"])
        axis.set_ylim(bottom=0)
        legend_below(figure)
        return svg(figure)


_POST = "post-processing"
_GROUPS: Mapping[str, str] = {"gold": "gold groups", "predicted": "predicted groups", "blind": "blind"}


def _family(result: MethodResult) -> str:
    if not is_sweep(result.method):
        return result.method.partition(" strength=")[0]
    group = str(result.facts.get("group"))
    return f"{_POST}: {result.facts.get('criterion')}, {_GROUPS.get(group, group)}"


def _lowest(points: Sequence[Point]) -> str:
    best = min(points, key=lambda p: p.gap)
    return f"{fraction(best.gap)} at {fraction(best.accuracy)}{_how(best)}"


def _how(point: Point) -> str:
    method, given, strength = point.name.partition(" strength=")
    if given:
        return f" (strength {strength})"
    parts = method.split()
    return f" (alpha {parts[2]})" if parts[0] == "xian" else " (base)" if method == "base" else ""
