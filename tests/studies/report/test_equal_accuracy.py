"""The gap at equal accuracy: the lower hull of a method's rows, and what the report shows of it."""

from dataclasses import replace

import numpy as np
import pytest

from repsurgery import metrics
from repsurgery.studies.common.report.drawing import STYLE, legend_below, matplotlib, svg
from repsurgery.studies.fairness.report.equal_accuracy import (
    Point,
    curves,
    equal_accuracy_table,
    gap_at,
    plot_equal_accuracy,
)
from tests.studies.report.studies import bios_record, dialect_record, method_result, setting_of, sweep_result

BASE = Point(0.80, 0.20, "base")


def test_between_two_rows_the_gap_is_that_of_their_mixture():
    points = [BASE, Point(0.76, 0.04, "far")]
    assert gap_at(points, 0.80) == 0.20
    assert gap_at(points, 0.79) == pytest.approx(0.16)
    assert gap_at(points, 0.76) == pytest.approx(0.04)
    assert gap_at(points, 0.70) == 0.04
    assert gap_at(points, 0.81) is None


def test_rows_that_others_dominate_do_not_count():
    points = [BASE, Point(0.79, 0.25, "worse"), Point(0.82, 0.10, "better"), Point(0.78, 0.05, "far")]
    assert gap_at(points, 0.80) == pytest.approx(0.075)  # half of each of the last two
    assert gap_at([BASE, points[1]], 0.79) == 0.20


def test_a_random_mixture_of_predictions_reaches_the_line():
    # the RMS is a norm of the gaps of the classes, which are linear in the mixture
    rng = np.random.default_rng(0)
    n = 60_000
    y, z = rng.integers(4, size=n), rng.integers(2, size=n)
    first = np.where(rng.random(n) < 0.9 - 0.3 * z, y, (y + 1) % 4)
    second = np.where(rng.random(n) < 0.6, y, (y + 2) % 4)
    mixed = np.where(rng.random(n) < 0.5, first, second)
    points = [Point(metrics.accuracy(y, p), metrics.tpr_gap_rms(y, p, z), "") for p in (first, second)]
    # 7,500 rows in a cell: three standard errors of a difference of two rates
    noise = 3 * np.sqrt(2 * 0.25 / 7500)
    found = metrics.tpr_gap_rms(y, mixed, z)
    assert found <= gap_at(points, metrics.accuracy(y, mixed)) + noise
    assert found < points[0].gap - noise


def strengths():
    base = (0.155, 0.8)
    rows = {"base": base, "mimic strength=0.5": (0.11, 0.81), "mimic": (0.09, 0.785)}
    results = [method_result(name, *figures, base=base) for name, figures in rows.items()]
    sweep = [
        sweep_result(alpha, criterion="equal-opportunity", group="blind", tpr=tpr, accuracy=accuracy)
        for alpha, tpr, accuracy in ((0.0, 0.05, 0.77), (0.1, 0.12, 0.795))
    ]
    record = bios_record()
    return replace(record, settings=(setting_of([*results, *sweep]),))


def test_strengths_and_alphas_are_points_of_one_curve_each():
    record = strengths()
    found = curves(record, record.settings[0])
    assert {family: len(points) for family, points in found.items()} == {
        "mimic": 3,
        "post-processing: equal-opportunity, blind": 3,
    }
    table = equal_accuracy_table(record)
    assert table.headings == ("method", "at the base's accuracy", "1 point below", "2 points below", "lowest")
    assert table.rows == (
        ("mimic", ".102", ".094", ".090", ".090 at .785"),
        ("post-processing: equal-opportunity, blind", ".155", ".106", ".078", ".050 at .770 (alpha 0)"),
    )


def test_without_post_processing_there_is_nothing_to_compare():
    assert equal_accuracy_table(dialect_record()) is None
    assert plot_equal_accuracy(dialect_record()) is None


def test_the_figure_shows_every_curve():
    drawn = plot_equal_accuracy(strengths())
    assert drawn.startswith("<svg")
    assert drawn == plot_equal_accuracy(strengths())
    for family in ("mimic", "post-processing: equal-opportunity, blind", "base"):
        assert f"<!-- {family} -->" in drawn


@pytest.mark.parametrize("length", [5, 40, 90])
@pytest.mark.parametrize("curves_drawn", [1, 4, 9])
def test_a_legend_is_within_its_figure(length, curves_drawn):
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(7.4, 4.6), layout="constrained")
        axis = figure.subplots()
        for i in range(curves_drawn):
            axis.plot([0, 1], [0, i], label=("post-processing: equal-opportunity, predicted groups " * 2)[:length])
        before = axis.get_window_extent().height
        legend_below(figure)
        svg(figure)
        (legend,) = figure.legends
        drawn = legend.get_window_extent()
        assert drawn.x0 >= 0 and drawn.y0 >= 0 and drawn.x1 <= figure.bbox.x1 and drawn.y1 <= figure.bbox.y1
        # the axes keep their height
        assert axis.get_window_extent().height >= 0.8 * before
