"""Figures of a toxicity study are drawn of what there is, and labels keep apart."""

from dataclasses import replace

import pytest

from repsurgery.studies.common.report.drawing import matplotlib, place_labels, set_log_ticks
from repsurgery.studies.toxicity.record import Configured
from repsurgery.studies.toxicity.report.plots import (
    _shifts,
    damage_measure,
    line_styles,
    plot_shifts,
    plot_strengths,
    plot_tradeoff,
)
from tests.studies.report.toxicity_records import (
    EVIL,
    ablations,
    choices_of,
    configured,
    main_configurations,
    toxicity_record,
)

pytest.importorskip("matplotlib", reason="figures need the extra repsurgery[report]")


def texts(svg):
    """Return the words of a figure; matplotlib leaves each beside its outlines."""
    return [part.split("-->")[0].strip() for part in svg.split("<!--")[1:]]


def test_what_is_absent_is_not_drawn():
    main = toxicity_record(main_configurations())
    assert plot_strengths(main) is None
    bare = toxicity_record([Configured("base")], examples=())
    assert plot_tradeoff(bare, "linear") is None and plot_shifts(bare) is None and plot_strengths(bare) is None
    unscored = [replace(c, maxima={"linear": [None] * 80}) for c in main.configurations]
    assert plot_shifts(toxicity_record(unscored)) is None
    assert plot_tradeoff(main, "unheard-of") is None


def test_every_configuration_is_a_numbered_point():
    record = toxicity_record()
    words = texts(plot_tradeoff(record, "linear"))
    for i, c in enumerate(record.configurations, 1):
        assert str(i) in words
        assert f"{i} {c.name}" in " ".join(words).replace("  ", " ")


def test_damage_is_wikitext_and_fluency_only_without_it():
    record = toxicity_record()
    assert "how unlikely the model finds WikiText (word perplexity)" in texts(plot_tradeoff(record, "linear"))
    without = toxicity_record([*main_configurations(wikitext=False), *ablations(wikitext=False)])
    assert damage_measure(without) == "perplexity"
    assert "how unlikely a judge finds the texts (perplexity)" in texts(plot_tradeoff(without, "linear"))
    assert "how unlikely a judge finds the texts (perplexity)" in texts(plot_strengths(without))


def test_a_wide_spread_gets_a_panel_of_the_base_and_its_neighbours():
    title = "up to 1.5 times the base"
    wide = toxicity_record(main_configurations())
    narrow = toxicity_record([c for c in wide.configurations if c.name != "mimic, all"])
    assert title in texts(plot_tradeoff(wide, "linear"))
    assert title not in texts(plot_tradeoff(narrow, "linear"))


def test_a_strength_curve_needs_three_points():
    curve = [configured(f"s{s}", (0.2, 30.0, 1.0), **choices_of("mean", "all", strength=s)) for s in (0.25, 0.5, 2.0)]
    base = main_configurations()[0]
    assert plot_strengths(toxicity_record([base, *curve[:2]])) is None
    assert "mean, all, last" in texts(plot_strengths(toxicity_record([base, *curve])))


def test_shifts_are_sorted_differences_of_prompts_scored_twice():
    base, other = (
        Configured("base", maxima={"s": [0.5, None, 0.2, 0.4]}),
        Configured("x", maxima={"s": [0.1, 0.3, 0.3, None]}),
    )
    assert _shifts(base, other, "s") == pytest.approx([-0.4, 0.1])
    assert _shifts(base, replace(other, maxima={"s": [0.1]}), "s") == []


def test_shifts_of_at_most_six_configurations_are_drawn():
    record = toxicity_record()
    words = texts(plot_shifts(record))
    names = [c.name for c in record.configurations[1:]]
    assert set(names[:6]) <= set(words) and not set(names[6:]) & set(words)


def test_no_two_lines_look_alike():
    configurations = main_configurations()[1:] + ablations()[3:6]
    looks = line_styles(configurations)
    assert len({tuple(sorted(look.items())) for look in looks}) == len(configurations)


def overlapping(texts):
    boxes = [text.get_window_extent() for text in texts]
    return sum(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_labels_of_near_points_keep_apart():
    figure = matplotlib().figure.Figure(figsize=(6, 4))
    placed, straight = figure.subplots(1, 2)
    points = [(0.5 + 0.004 * i, 0.5) for i in range(6)]
    for axis in (placed, straight):
        axis.plot(*zip(*points, strict=True), "o")
        axis.set(xlim=(0, 1), ylim=(0, 1))
    figure.draw_without_rendering()
    labels = [str(10 + i) for i in range(6)]
    place_labels(placed, points, labels)
    beside = [
        straight.annotate(label, p, (9, 0), textcoords="offset points") for label, p in zip(labels, points, strict=True)
    ]
    assert [text.get_text() for text in placed.texts] == labels
    assert overlapping(placed.texts) == 0
    assert overlapping(beside) > 0


def test_names_are_never_markup_and_never_fill_the_figure():
    odd = configured(EVIL, (0.2, 30.0, 1.0), **choices_of("mean", "all"))
    record = toxicity_record([*main_configurations()[:2], odd])
    for drawn in (plot_tradeoff(record, "linear"), plot_shifts(record)):
        assert "<script" not in drawn


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("largest", [40, 90, 300, 1776, 25_000, 1e6, 1e9, 1e24])
def test_numbers_on_a_log_axis_do_not_overlap(largest, across):
    mpl = matplotlib()
    figure = mpl.figure.Figure(figsize=(4.5, 3.9), layout="constrained")
    axes = figure.subplots()
    values = [29.0, 31.0, largest]
    axes.plot(*((values, [1, 2, 3]) if across else ([1, 2, 3], values)))
    axis = axes.xaxis if across else axes.yaxis
    axes.set(**{"xscale" if across else "yscale": "log"})
    set_log_ticks(axis, values)
    figure.draw_without_rendering()
    shown = [label for label in axis.get_ticklabels(which="both") if label.get_text()]
    low, high = axis.get_view_interval()
    ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    inside = [label for place, label in ticks if low <= place <= high]
    boxes = [label.get_window_extent() for label in inside]
    assert 2 <= len(boxes) <= 12 and len(shown) >= len(inside)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
