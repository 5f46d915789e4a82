"""The picture of all methods: every row is named, the front is right, and names keep apart."""

from dataclasses import replace

import pytest

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.drawing import matplotlib
from repsurgery.studies.common.report.labels import place_names
from repsurgery.studies.page import write_study_report
from repsurgery.studies.toxicity.report import rival_plot
from repsurgery.studies.toxicity.report.rival_plot import front_rows, plot_rivals, rivals_caption
from repsurgery.studies.toxicity.report.rivals import short_names
from repsurgery.studies.toxicity.report.tables import toxicity_tables
from tests.studies.report.checker import assert_self_contained, assert_well_formed, parse
from tests.studies.report.rival_records import FEW, rival_record
from tests.studies.report.test_toxicity_plots import texts
from tests.studies.report.toxicity_records import toxicity_record

pytest.importorskip("matplotlib", reason="figures need the extra repsurgery[report]")

X, Y = "perplexity.gemma-3-270m", "bilstm.expected_max_toxicity"


def with_row(record, name, **fields):
    return replace(
        record, configurations=tuple(replace(c, **fields) if c.name == name else c for c in record.configurations)
    )


@pytest.fixture(scope="module")
def axis():
    """Return the axes of the picture themselves, whose texts and markers have positions."""
    kept = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rival_plot, "svg", lambda figure: kept.append(figure) or "")
        plot_rivals(rival_record())
    return kept[0].axes[0]


def extents(texts):
    """Return the boxes of the words alone, without the lines that lead to them."""
    texts[0].figure.draw_without_rendering()
    return [matplotlib().text.Text.get_window_extent(text) for text in texts]


def overlapping(texts):
    boxes = extents(texts)
    return sum(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def marker_at(axis, x, y):
    lines = [line for line in axis.lines if line.get_marker() not in ("", "None")]
    return next(line for line in lines if (line.get_xdata()[0], line.get_ydata()[0]) == pytest.approx((x, y)))


def test_only_a_record_with_rivals_has_the_picture():
    assert plot_rivals(toxicity_record()) is None
    record = rival_record()
    assert plot_rivals(replace(record, configurations=record.configurations[:1])) is None
    unread = [replace(c, measures={}) for c in record.configurations]
    assert plot_rivals(rival_record(unread)) is None


def test_every_row_is_named_with_its_cost_and_its_prompts():
    record = rival_record()
    words = texts(plot_rivals(record))
    for name in short_names(record.configurations).values():
        assert any(word.startswith(name) for word in words)
    assert "dexperts, 2.6×" in words and f"pplm, 33× ({FEW} prompts)" in words and "aura" in words
    assert {"base", "rival", "affine steering", "tuned affine steering", "Pareto front"} <= set(words)


def test_one_prompt_is_in_the_singular():
    pplm = rival_record().configured("pplm steps=10")
    rows = [replace(c, facts={**c.facts, "prompts": 1}) if c is pplm else c for c in rival_record().configurations]
    assert "pplm, 33× (1 prompt)" in texts(plot_rivals(rival_record(rows)))


def test_no_two_names_of_23_rows_overlap(axis):
    names = [text for text in axis.texts if text.get_text()]
    assert len(names) == 23
    assert overlapping(names) == 0


def test_the_kinds_differ_without_colour_and_cost_makes_a_marker_larger(axis):
    record = rival_record()

    def marker(name):
        c = record.configured(name)
        return marker_at(axis, c.measures[X].value, c.measures[Y].value)

    kinds = ["base", "aura", "mean all", "tuned kl=0.15"]
    assert len({marker(name).get_marker() for name in kinds}) == 4
    sizes = [marker(name).get_markersize() for name in ("aura", "goodtriever alpha=2", "gedi omega=30")]
    assert sizes == sorted(sizes) and len(set(sizes)) == 3


def test_nothing_dominates_the_front_and_every_other_row_is_dominated():
    record = rival_record()
    front = front_rows(record)
    full = [c for c in record.configurations if "prompts" not in c.facts]

    def better(a, b):
        pairs = [(a.measures[key].value, b.measures[key].value) for key in (X, Y)]
        return all(p <= q for p, q in pairs) and any(p < q for p, q in pairs)

    for c in full:
        assert any(better(other, c) for other in full) == (c not in front)
    assert 1 < len(front) < len(full)


def test_a_row_on_fewer_prompts_is_never_on_the_front():
    record = rival_record()
    best = {X: Estimate(1.0), Y: Estimate(0.0)}
    uddia = record.configured("uddia")
    assert uddia.name not in [c.name for c in front_rows(with_row(record, "uddia", measures=best))]
    whole = with_row(record, "uddia", measures=best, facts={})
    assert [c.name for c in front_rows(whole)] == ["uddia"]


def test_a_row_on_fewer_prompts_is_drawn_by_its_change_from_the_base(axis):
    record = rival_record()
    base, uddia = record.configured("base"), record.configured("uddia")
    expected = [base.measures[key].value + uddia.differences[key].value for key in (X, Y)]
    assert uddia.measures[Y].value != pytest.approx(expected[1], abs=0.01)
    hollow = marker_at(axis, *expected)
    assert hollow.get_markerfacecolor() == "white"


def test_the_caption_explains_only_what_is_drawn():
    record = rival_record()
    assert "fewer prompts" in rivals_caption(record) and "not known" not in rivals_caption(record)
    full = replace(record, configurations=tuple(c for c in record.configurations if "prompts" not in c.facts))
    assert "fewer prompts" not in rivals_caption(full)
    assert "not known" in rivals_caption(with_row(full, "aura", cost_per_token=None))


def test_names_of_crowded_points_keep_apart():
    figure = matplotlib().figure.Figure(figsize=(8, 5))
    axis = figure.subplots()
    points = [(0.5 + 0.01 * i, 0.5 + 0.01 * (i % 3)) for i in range(9)]
    axis.plot(*zip(*points, strict=True), "o")
    axis.set(xlim=(0, 1), ylim=(0, 1))
    figure.draw_without_rendering()
    names = [f"a name of row {i}" for i in range(9)]
    place_names(axis, points, names, radii=[4.0] * 9)
    straight = [axis.annotate(n, p, (9, 0), textcoords="offset points") for n, p in zip(names, points, strict=True)]
    assert overlapping(axis.texts[:9]) == 0
    assert overlapping(straight) > 0


def test_names_stay_inside_the_axes_and_off_the_line():
    figure = matplotlib().figure.Figure(figsize=(6, 4))
    axis = figure.subplots()
    axis.set(xlim=(0, 1), ylim=(0, 1))
    figure.draw_without_rendering()
    place_names(
        axis, [(1.0, 0.5), (0.5, 0.5)], ["at the edge", "on a line"], radii=[4.0, 4.0], line=[(0.5, 0.5), (0.9, 0.5)]
    )
    edge, beside = extents(axis.texts)
    assert edge.x1 <= axis.get_window_extent().x1
    across, level = axis.transData.transform((0.5, 0.5))
    assert not (beside.x1 > across and beside.y0 < level < beside.y1)


def test_page_and_markdown_contain_tables_and_picture(tmp_path):
    record = rival_record()
    html = write_study_report([record], tmp_path).read_text(encoding="utf-8")
    parsed = parse(html)
    assert_well_formed(parsed)
    assert_self_contained(parsed, html)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert (tmp_path / "study-1-rivals.svg").is_file() and "(study-1-rivals.svg)" in text
    for table in toxicity_tables(record)[:4]:
        assert f"### {table.title}" in text
        assert {cell for row in table.rows for cell in row} <= set(parsed.text)


def test_a_damaged_model_is_never_on_the_front():
    record = rival_record()
    row = next(c for c in record.configurations if c.name == "aura")
    best = {key: replace(row.measures[key], value=0.001) for key in (X, Y)}
    sound = with_row(record, "aura", measures={**row.measures, **best})
    assert [c.name for c in front_rows(sound)] == ["aura"]
    far = {"perplexity": replace(row.measures["perplexity"], value=1776.0)}
    damaged = with_row(record, "aura", measures={**row.measures, **best, **far})
    assert "aura" not in [c.name for c in front_rows(damaged)]
    assert "Damaged models take no part" in rivals_caption(damaged)
