"""Tables show the record's numbers, and leave out what was not measured."""

from dataclasses import replace

import pytest

from repsurgery.studies.common.report.numbers import estimate, fraction
from repsurgery.studies.common.report.sections import cautions
from repsurgery.studies.fairness.data import SOURCES
from repsurgery.studies.fairness.record import MethodResult
from repsurgery.studies.fairness.report.facts import fact_tables, summary_table
from repsurgery.studies.fairness.report.section import study_sections
from repsurgery.studies.fairness.report.tables import result_tables
from repsurgery.studies.fairness.spec import NAMED_DATA, SYNTHETIC
from tests.studies.report.studies import METHODS, bios_record, dialect_record, record_of, setting_of


def tables(record):
    return {table.title: table for table in (*result_tables(record), *fact_tables(record))}


def column(table, heading):
    place = table.headings.index(heading)
    return [row[place] for row in table.rows]


def parsed(cell):
    """Return the numbers of a cell, signs and brackets undone."""
    return [float(word.strip("[],").replace("−", "-")) for word in cell.split()]


@pytest.mark.parametrize("name", ["test.tpr_gap_rms", "test.accuracy"])
def test_values_and_intervals_shown_are_those_of_the_record(name):
    record = bios_record()
    title = {"test.tpr_gap_rms": "TPR gap RMS", "test.accuracy": "Accuracy"}[name]
    table = tables(record)[title]
    assert column(table, "method") == list(METHODS)
    for row, method in zip(table.rows, METHODS, strict=True):
        result = record.settings[0].method(method)
        held = result.measures[name]
        assert parsed(row[1]) == [round(x, 3) for x in (held.value, held.low, held.high)]
        if method != "base":
            change = result.differences[name]
            assert parsed(row[2]) == [round(x, 3) for x in (change.value, change.low, change.high)]


def test_the_dialect_tables_have_a_row_for_each_ratio_and_a_column_for_each_method():
    record = dialect_record()
    table = tables(record)["TPR gap RMS by ratio"]
    assert table.headings == ("ratio", "base", "mean", "mimic")
    for row, setting in zip(table.rows, record.settings, strict=True):
        assert float(row[0]) == setting.ratio
        values = [result.measures["test.tpr_gap_rms"].value for result in setting.methods]
        assert [parsed(cell)[0] for cell in row[1:]] == [round(value, 3) for value in values]


def test_every_row_has_as_many_cells_as_there_are_headings():
    for record in (bios_record(), dialect_record()):
        for table in (*tables(record).values(), summary_table([record])):
            assert {len(row) for row in table.rows} == {len(table.headings)}, table.title
            assert table.keys <= len(table.headings)


def test_the_sweep_stands_in_tables_of_its_own():
    held = tables(bios_record())
    sweep = next(table for title, table in held.items() if title.startswith("Post-processing"))
    assert [row[:3] for row in sweep.rows] == [
        ("demographic-parity", "predicted", "0"),
        ("demographic-parity", "predicted", "0.01"),
        ("demographic-parity", "predicted", "0.1"),
        ("equal-opportunity", "gold", "0"),
    ]
    assert "BERT-base .155 → .146" in sweep.caption
    for title, table in held.items():
        if not title.startswith("Post-processing"):
            assert not any("xian" in cell for row in table.rows for cell in row), title
    assert not any(title.startswith("Post-processing") for title in tables(dialect_record()))


def test_the_ten_largest_gaps_come_first_and_an_absent_group_never():
    record = bios_record()
    table = tables(record)["TPR gap by class"]
    gaps = record.settings[0].method("base").gaps
    shown = column(table, "class")
    assert len(shown) == 10
    assert "class 3" not in shown
    assert gaps["class 3"] is None
    assert [abs(gaps[c]) for c in shown] == sorted((abs(g) for g in gaps.values() if g is not None), reverse=True)[:10]
    assert [parsed(cell)[0] for cell in column(table, "base")] == [round(gaps[c], 3) for c in shown]


def test_certificates_are_shown_fitted_and_held_out():
    table = tables(bios_record())["Certificates"]
    row = dict(zip(table.headings, table.rows[3], strict=True))
    assert row["method"] == "trace"
    assert row["mean gap before"] == "3.25"
    assert row["mean gap, fitted"] == "1e-14"
    assert row["gate's Youden J"] == "0.930"
    assert column(table, "claims") == [
        *["not contradicted"] * 3,
        "contradicted",
        "not contradicted",
    ]
    assert "base" not in column(table, "method")


def test_what_was_not_measured_has_no_table_and_no_column():
    empty = MethodResult("base")
    bare = record_of([setting_of([empty, replace(empty, method="mimic")])], data={"name": "gap"}, seconds={})
    assert result_tables(bare) == []
    assert [table.title for table in fact_tables(bare)] == [
        "Rows and concept",
        "Data",
        "Encoder",
        "Options",
        "Environment",
    ]
    full = bios_record()
    results = tuple(
        replace(r, measures={k: v for k, v in r.measures.items() if not k.startswith(("dev.", "probe."))})
        for r in full.settings[0].methods
    )
    part = replace(full, settings=(replace(full.settings[0], methods=results),))
    assert "On the dev split" in tables(full)
    assert "On the dev split" not in tables(part)
    assert "majority share" in tables(full)["Other measures"].headings
    assert not {"majority share", "linear probe"} & set(tables(part)["Other measures"].headings)


def test_an_experiment_that_was_never_published_gets_no_verdicts():
    table = tables(bios_record(experiment="own"))["TPR gap RMS"]
    assert table.headings == ("method", "TPR gap RMS", "change from base")


def test_the_summary_names_the_lowest_gap_of_a_changed_representation():
    table = summary_table([bios_record(), dialect_record()])
    assert column(table, "TPR gap: base → lowest") == [".155 → .093 (mimic)", ".195 → .030 (mean, ratio .95)"]
    assert column(table, "accuracy")[0] == ".800 → .785"


def test_cautions_of_the_data_come_before_the_notes_of_the_run():
    assert cautions(bios_record()) == ["Gender is binary in this data.", "One run, one seed."]


def test_another_version_gives_a_caution():
    assert "made by repsurgery 0.0.0-other" in cautions(bios_record(environment={"repsurgery": "0.0.0-other"}))[-1]
    assert "does not say" in cautions(bios_record(environment={}))[-1]


def test_texts_are_counted_by_class_and_concept():
    table = tables(bios_record())["Texts by class and concept"]
    assert table.headings == ("class", "female", "male")
    assert table.rows == (("nurse", "182,000", "11,000"), ("surgeon", "9,000", "190,000"))


@pytest.mark.parametrize(
    ("value", "signed", "shown"),
    [(0.0004, True, ".000"), (-0.0004, True, ".000"), (-0.5, False, "−.500"), (1.0, True, "+1.000"), (None, True, "–")],
)
def test_shares_lose_their_zero_but_never_their_sign(value, signed, shown):
    assert fraction(value, signed=signed) == shown


def test_an_estimate_that_is_absent_is_a_dash():
    assert estimate(None) == "–"


def test_the_study_chooses_the_classes_of_the_gap():
    everyone, predicted = bios_record(), bios_record(spec={"preset": "released", "tpr_classes": "predicted"})
    held = everyone.settings[0].method("base").measures
    overall, chosen = (column(tables(record)["TPR gap RMS"], "TPR gap RMS")[0] for record in (everyone, predicted))
    assert overall.startswith(fraction(held["test.tpr_gap_rms"].value))
    assert chosen.startswith(fraction(held["test.tpr_gap_rms_predicted"].value)) and chosen != overall
    other = tables(everyone)["Other measures"]
    assert column(other, "TPR gap RMS, all classes")[0] == overall
    assert column(other, "TPR gap RMS, classes predicted")[0] == chosen
    assert "all classes with both groups" in str(tables(everyone)["How verdicts are made"].rows)
    assert "So do ours" in str(tables(predicted)["How verdicts are made"].rows)


def own(record):
    """Return the record as one of a reader's own table."""
    return replace(record, spec={**record.spec, "data": "people.csv"}, data={**record.data, "name": "people"})


@pytest.mark.parametrize("build", [bios_record, dialect_record])
def test_a_study_of_own_data_shows_nothing_of_the_published_one(build):
    """Neither columns nor captions nor lines of figures: the paper says nothing about these data."""
    (named,), (section,) = study_sections([build()]), study_sections([own(build())])
    text, control = (
        str([(t.title, t.headings, t.caption, t.rows) for t in (*s.results, *s.facts)])
        + str([(d.caption, d.svg) for d in s.drawings])
        for s in (section, named)
    )
    for word in ("ublished", "notebook", "Llama", "BERT", "same direction"):
        assert word not in text, word
    assert "ublished" in control
    # what is significant is still shown, by the stars of the changes
    assert "*" in str([t.rows for t in section.results]) and "Holm" in text


def test_the_named_data_are_those_that_the_study_loads():
    assert {*NAMED_DATA} == {*SOURCES, SYNTHETIC}


@pytest.mark.parametrize("record", [bios_record(), dialect_record(), own(bios_record()), own(dialect_record())])
def test_no_caption_is_longer_than_six_lines(record):
    (section,) = study_sections([record])
    captions = [t.caption for t in (*section.results, *section.facts, summary_table([record]))]
    captions += [drawing.caption for drawing in section.drawings]
    # a line of the page holds 52 rem at .85 of the size of the text, which is about 115 characters
    assert max(map(len, captions)) <= 6 * 115


def test_neighbours_have_a_row_for_each_number_and_a_column_for_each_method():
    record = bios_record()
    table = tables(record)["Neighbours"]
    assert table.headings == ("k", *METHODS) and table.keys == 1
    for row in table.rows:
        held = [record.settings[0].method(name).neighbours[row[0]].value for name in METHODS]
        assert [parsed(cell)[0] for cell in row[1:]] == [round(value, 3) for value in held]
    both = tables(dialect_record())
    assert "Neighbours" not in both or both["Neighbours"].headings[:2] == ("ratio", "k")


@pytest.mark.parametrize(("p_value", "seen"), [(0.001, True), (0.04, False), (1.0, False)])
def test_the_summary_names_no_lowest_gap_without_a_difference(p_value, seen):
    """The tests are those of the tables: corrected over the five methods, so that .04 is no difference."""
    record = bios_record()
    methods = [
        replace(r, differences={k: replace(d, p_value=p_value) for k, d in r.differences.items()})
        for r in record.settings[0].methods
    ]
    found = summary_table([replace(record, settings=(replace(record.settings[0], methods=tuple(methods)),))])
    gap = column(found, "TPR gap: base → lowest")
    assert gap == ([".155 → .093 (mimic)"] if seen else [".155 (no difference seen)"])
    assert column(found, "accuracy") == ([".800 → .785"] if seen else [".800"])
