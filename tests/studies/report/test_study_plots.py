"""Figures are drawn of what there is, on shared scales, with published curves where they belong."""

import re
from dataclasses import replace

import numpy as np
import pytest

from repsurgery.studies.fairness.record import CosineThumbnail
from repsurgery.studies.fairness.report.plots import _scale, plot_cosines, plot_neighbours, plot_ratios
from tests.studies.report.studies import bios_record, dialect_record

pytest.importorskip("matplotlib", reason="figures need the extra repsurgery[report]")


def dashes(svg):
    return len(re.findall(r"stroke-dasharray", svg))


def test_what_is_absent_is_not_drawn():
    dialect = dialect_record()
    assert plot_neighbours(dialect) is None
    assert plot_cosines(dialect.settings[0]) is None
    assert plot_ratios(bios_record(), "tpr_gap") is None
    assert plot_ratios(dialect_record(ratios=(0.5,)), "tpr_gap") is None


def test_published_neighbours_are_drawn_only_beside_the_published_model():
    other = plot_neighbours(bios_record())
    same = plot_neighbours(bios_record(encoder={"name": "meta-llama/Llama-2-7b-hf"}))
    bert = plot_neighbours(bios_record(encoder={"name": "google-bert/bert-base-uncased"}))
    # three curves and the line of the legend
    assert dashes(same) == dashes(other) + 4
    assert bert == other


def test_published_ratios_are_drawn_beside_every_dialect_study():
    drawn = plot_ratios(dialect_record(), "tpr_gap")
    assert dashes(drawn) == 4
    assert dashes(plot_ratios(dialect_record(experiment="own"), "tpr_gap")) == 0


def test_intervals_are_drawn_where_there_are_any():
    record = dialect_record()
    bare = replace(
        record,
        settings=tuple(
            replace(
                s,
                methods=tuple(
                    replace(r, measures={k: replace(e, low=None, high=None) for k, e in r.measures.items()})
                    for r in s.methods
                ),
            )
            for s in record.settings
        ),
    )
    assert plot_ratios(record, "accuracy").count("FillBetweenPolyCollection") == 3
    assert "FillBetweenPolyCollection" not in plot_ratios(bare, "accuracy")


def test_all_panels_share_the_scale_of_everything_off_the_diagonal():
    first = CosineThumbnail.of(np.array([[1, -0.5], [-0.5, 1]]), 0, 0)
    second = CosineThumbnail.of(np.array([[1, 0.25], [0.25, 1]]), 0, 0)
    step = 1 / 127
    assert _scale([first, second]) == pytest.approx((-0.5, 0.25), abs=step / 2)


def test_one_colour_bar_serves_all_panels():
    drawn = plot_cosines(bios_record().settings[0])
    # six panels and the bar are pictures
    assert drawn.count("<image") == 6 + 1


def test_a_dollar_sign_in_a_name_does_not_start_a_formula():
    record = bios_record()
    setting = record.settings[0]
    named = tuple(replace(r, method=r"$\frac{$" if r.method == "trace" else r.method) for r in setting.methods)
    assert plot_neighbours(replace(record, settings=(replace(setting, methods=named),))).startswith("<svg")
