"""One line in a study's table of measures is a column of its report; extras are named where they are missing."""

import sys
from dataclasses import replace

import pytest

from repsurgery.errors import MissingExtraError
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report import rendering
from repsurgery.studies.common.report.drawing import COLOURS, SPARE_COLOURS, colour_of
from repsurgery.studies.common.report.tables import Measure
from repsurgery.studies.fairness.report import columns as fairness
from repsurgery.studies.fairness.report.tables import result_tables
from repsurgery.studies.page import write_study_report
from repsurgery.studies.toxicity.report import columns as toxicity
from repsurgery.studies.toxicity.report.tables import toxicity_certificates, toxicity_tables
from tests.studies.report.studies import bios_record
from tests.studies.report.toxicity_records import main_configurations, toxicity_record


def named(tables, title):
    return next(table for table in tables if table.title == title)


def test_a_new_measure_of_a_fairness_study_is_one_line(monkeypatch):
    line = Measure("test.new", "a new measure", "other", "quantity", better="higher", change=True)
    monkeypatch.setattr(fairness, "_MEASURES", (*fairness._MEASURES, line))
    record = bios_record()
    setting = record.settings[0]
    methods = tuple(replace(r, measures={**r.measures, "test.new": Estimate(12.5)}) for r in setting.methods)
    table = named(result_tables(replace(record, settings=(replace(setting, methods=methods),))), "Other measures")
    assert table.headings[-1] == "a new measure"
    assert {row[-1] for row in table.rows} == {"12.50"}
    assert table.caption.endswith("Higher is better: a new measure.")
    assert "a new measure" not in named(result_tables(record), "Other measures").headings


def test_a_new_measure_of_a_toxicity_study_is_one_line(monkeypatch):
    line = Measure("{scorer}.new", "a new measure", "toxicity", "percent", better="lower")
    monkeypatch.setattr(toxicity, "MEASURES", (*toxicity.MEASURES, line))
    held = [replace(c, measures={**c.measures, "bilstm.new": Estimate(0.25)}) for c in main_configurations()]
    tables = toxicity_tables(toxicity_record(held))
    assert named(tables, "Toxicity").headings[-1] == "a new measure, bilstm"
    assert {row[-1] for row in named(tables, "Toxicity by bilstm").rows} == {"25%"}
    assert named(tables, "Toxicity by bilstm").caption.endswith("a new measure.")


def test_captions_give_the_better_direction_of_the_columns_shown():
    record = toxicity_record(main_configurations(wikitext=False))
    caption = named(toxicity_tables(record), "Fluency, diversity, collateral damage").caption
    assert "Lower is better: perplexity; KL from base." in caption
    assert "Higher is better: dist-1; dist-2; dist-3." in caption


def test_keys_of_measures_are_unique_in_their_table():
    for measures in (fairness._MEASURES, toxicity.MEASURES):
        places = [(measure.table, measure.key) for measure in measures]
        assert len(set(places)) == len(places)


def test_certificates_of_a_toxicity_study_stand_alone():
    record = toxicity_record()
    assert toxicity_certificates(record) == named(toxicity_tables(record), "Certificates")
    bare = [replace(c, certificate=None, held_out=None, supported=None) for c in main_configurations()]
    assert toxicity_certificates(toxicity_record(bare)) is None


def test_an_unknown_method_always_gets_the_same_spare_colour():
    assert all(colour_of(name) == colour for name, colour in COLOURS.items())
    names = [f"plugin-{i}" for i in range(40)]
    assert {colour_of(name) for name in names} == set(SPARE_COLOURS)
    assert [colour_of(name) for name in names[:3]] == ["#3b3b6d", "#d17fb3", "#9a9a2e"]


@pytest.mark.parametrize("module", ["jinja2", "matplotlib"])
def test_a_missing_library_is_named_with_its_extra_and_nothing_is_written(module, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    rendering._templates.cache_clear()
    with pytest.raises(MissingExtraError, match=r"pip install 'repsurgery\[report\]'"):
        write_study_report([bios_record()], tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_tables_need_neither_templates_nor_figures(monkeypatch):
    for module in ("jinja2", "matplotlib"):
        monkeypatch.setitem(sys.modules, module, None)
    assert result_tables(bios_record()) and toxicity_tables(toxicity_record())
