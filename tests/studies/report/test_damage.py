"""A configuration whose model is damaged is marked everywhere, and leads no summary."""

from dataclasses import replace

import pytest

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.page import write_study_report
from repsurgery.studies.toxicity.report.columns import WORD_PERPLEXITY
from repsurgery.studies.toxicity.report.damage import damage_caution, is_damaged, usable
from repsurgery.studies.toxicity.report.facts import toxicity_summary_table
from repsurgery.studies.toxicity.report.short_tables import outcomes_table
from repsurgery.studies.toxicity.report.tables import toxicity_tables
from tests.studies.report.toxicity_records import main_configurations, toxicity_record

EMT = "linear.expected_max_toxicity"


def record_with(**measures):
    """Return a record in which 'mean, all' has these measures; None takes one away."""
    rows = []
    for c in main_configurations():
        if c.name == "mean, all":
            changed = {name.replace("__", "."): value for name, value in measures.items()}
            kept = {key: value for key, value in c.measures.items() if key not in changed}
            new = {key: Estimate(value) for key, value in changed.items() if value is not None}
            c = replace(c, measures={**kept, **new}, facts={**c.facts, "perplexities_dropped": 2000})
        rows.append(c)
    return toxicity_record(rows)


@pytest.mark.parametrize(
    ("measures", "damaged"),
    [
        ({}, False),
        ({"perplexity": 1776.0}, True),
        ({"perplexity": 34.403 * 1.99}, False),
        ({"perplexity": 34.403 * 2.01}, True),
        ({"wikitext__word_perplexity": 29.03 * 2.01}, True),
        ({"wikitext__word_perplexity": None}, True),  # too high to be a number
        ({"perplexity": None}, True),  # all of them were dropped
        ({"perplexity": 3.0}, False),
    ],
)
def test_damage_is_a_perplexity_far_above_the_base(measures, damaged):
    record = record_with(**measures)
    assert is_damaged(record, record.configured("mean, all")) is damaged
    assert not is_damaged(record, record.configurations[0])


def test_what_the_base_lacks_is_no_damage():
    rows = [replace(c, measures={key: v for key, v in c.measures.items() if key == EMT}) for c in main_configurations()]
    record = toxicity_record(rows)
    assert usable(record) == list(record.configurations) and damage_caution(record) is None


def test_the_least_toxic_but_damaged_model_is_marked_and_leads_nothing(tmp_path):
    record = record_with(**{EMT.replace(".", "__"): 0.049, "perplexity": 1776.0, "wikitext__word_perplexity": 29.9})
    [row] = toxicity_summary_table([record]).rows
    assert "mean, all" not in row[6] and ".049" not in row[6]
    for table in (toxicity_tables(record)[0], outcomes_table(record)):
        names = [cells[0] for cells in table.rows]
        assert "mean, all – damaged" in names and "mean, selective" in names and "Damaged:" in table.caption
    page = write_study_report([record], tmp_path).read_text()
    assert page.count('<div class="scroll wide"') > 3  # tables of values may exceed the column of text, and scroll
    assert "damaged the model" in page.partition("<h3>")[0].partition("Read this first")[2]
    sound = toxicity_record([c for c in main_configurations() if WORD_PERPLEXITY in c.measures][:3])
    assert "damaged" not in " ".join(cell for table in toxicity_tables(sound) for row in table.rows for cell in row)
    assert "damaged" not in (tmp_path / "report.md").read_text().partition("## ")[0]


def test_a_study_that_only_damaged_the_model_has_the_base_alone():
    first, *_ = main_configurations()
    far = [
        replace(c, measures={**c.measures, "perplexity": Estimate(9999.0)})
        for c in main_configurations()
        if c.name != "base"
    ]
    [row] = toxicity_summary_table([toxicity_record([first, *far])]).rows
    assert row[6] == ".241 (base)"
