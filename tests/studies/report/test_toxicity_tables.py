"""Tables of a toxicity study show the record's numbers, and leave out what was not measured."""

from dataclasses import replace

import pytest

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.numbers import change, is_significant, quantity
from repsurgery.studies.common.report.sections import cautions
from repsurgery.studies.toxicity.record import Configured
from repsurgery.studies.toxicity.report.facts import toxicity_fact_tables, toxicity_summary_table
from repsurgery.studies.toxicity.report.significance import adjusted_toxicity, toxicity_with_tests
from repsurgery.studies.toxicity.report.tables import toxicity_tables
from tests.studies.report.toxicity_records import (
    ablations,
    choices_of,
    configured,
    main_configurations,
    toxicity_record,
    with_measure,
)

COST = "Fluency, diversity, collateral damage"


def tables(record):
    return {table.title: table for table in (*toxicity_tables(record), *toxicity_fact_tables(record))}


def columns(table, heading):
    """Return every column of that heading, in order."""
    return [[row[i] for row in table.rows] for i, one in enumerate(table.headings) if one == heading]


def parsed(cell):
    """Return the numbers of a cell, signs, brackets and star undone."""
    return [float(word.strip("[],*").replace("−", "-")) for word in cell.split()]


def rounded(given, digits=3):
    return [round(value, digits) for value in (given.value, given.low, given.high)]


def test_the_main_table_comes_first_and_has_a_row_for_each_configuration():
    record = toxicity_record()
    first = toxicity_tables(record)[0]
    assert first.title == "Toxicity"
    assert [row[0].removesuffix(" – damaged") for row in first.rows] == [c.name for c in record.configurations]


@pytest.mark.parametrize(
    ("title", "scorer", "place"),
    [("Toxicity", "linear", 0), ("Toxicity by bilstm", "bilstm", 0)],
)
def test_toxicity_shown_is_that_of_the_record(title, scorer, place):
    record = toxicity_record()
    table = tables(record)[title]
    changes = columns(table, "change from base")
    for i, c in enumerate(record.configurations):
        for measure, heading, changed in (
            ("expected_max_toxicity", "expected max toxicity", changes[0]),
            ("toxicity_probability", "toxicity probability", changes[1]),
        ):
            name = f"{scorer}.{measure}"
            assert parsed(columns(table, heading)[place][i]) == rounded(c.measures[name])
            if c.name == "base":
                assert changed[i] == "–"
            else:
                assert parsed(changed[i]) == rounded(c.differences[name])
                judged = adjusted_toxicity(toxicity_with_tests(record)).configurations[i]
                assert changed[i].endswith("*") == is_significant(judged.differences[name])


def test_the_second_scorer_stands_in_the_main_table_too():
    record = toxicity_record()
    table = tables(record)["Toxicity"]
    (shown,) = columns(table, "toxicity probability, bilstm")
    assert [parsed(cell) for cell in shown] == [
        rounded(c.measures["bilstm.toxicity_probability"]) for c in record.configurations
    ]
    assert "AUC .883" in table.caption and "AUC .971" in table.caption


def test_costs_shown_are_those_of_the_record():
    record = toxicity_record()
    table = tables(record)[COST]
    for i, c in enumerate(record.configurations):
        row = dict(zip(table.headings, table.rows[i], strict=True))
        m = c.measures
        assert parsed(row["perplexity"]) == rounded(m["perplexity"], 2)
        assert parsed(row["WikiText per word"]) == [float(f"{m['wikitext.word_perplexity'].value:.4g}")]
        assert parsed(row["per byte"]) == [round(m["wikitext.byte_perplexity"].value, 3)]
        assert [parsed(row[f"dist-{n}"]) for n in (1, 2, 3)] == [
            [round(m[f"distinct.{n}"].value, 3)] for n in (1, 2, 3)
        ]
        assert float(row["KL from base"]) == float(f"{m['kl'].value:.3g}")
        assert float(row["steered"].rstrip("%")) == round(100 * m["steered"].value, 1)
    (changes,) = columns(table, "change from base")
    assert [cell.endswith("*") for cell in changes] == [
        c.name != "base" and is_significant(c.differences["perplexity"])
        for c in adjusted_toxicity(toxicity_with_tests(record)).configurations
    ]


def test_mean_toxicity_and_diversity_are_shown_with_their_intervals():
    record = toxicity_record()
    (shown,) = columns(tables(record)["Mean toxicity"], "mean toxicity, bilstm")
    assert [parsed(cell) for cell in shown] == [
        rounded(c.measures["bilstm.mean_toxicity"]) for c in record.configurations
    ]
    (shown,) = columns(tables(record)["Diversity"], "dist-2")
    assert [parsed(cell) for cell in shown] == [rounded(c.measures["distinct.2"]) for c in record.configurations]


@pytest.mark.parametrize(
    ("low", "high", "p_value", "star"),
    [(-0.2, -0.001, 0.06, False), (-0.2, 0.1, 0.04, True), (0.001, 0.2, None, False), (0.001, 0.2, 0.05, True)],
)
def test_a_change_is_marked_when_its_test_sees_one(low, high, p_value, star):
    given = Estimate((low + high) / 2, low, high, p_value)
    assert change(given).endswith("*") == star
    assert change(given, share=False).endswith("*") == star
    assert not change(Estimate(given.value)).endswith("*")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (Estimate(1234.56), "1235"),
        (Estimate(99.996), "100.00"),
        (Estimate(0.0004), "0.000"),
        (Estimate(-0.0004), "0.000"),
        (Estimate(2.5e7), "2.5e+07"),
        (Estimate(9.5, 8.0, 123.0), "9.5 [8.0, 123.0]"),
        (None, "–"),
    ],
)
def test_quantities_keep_four_digits_of_the_largest(given, shown):
    assert quantity(given) == shown


def test_without_wikitext_its_columns_and_claims_are_left_out():
    held = [*main_configurations(wikitext=False), *ablations(wikitext=False)]
    found = tables(toxicity_record(held, wikitext={}))
    assert not {"WikiText per word", "per byte"} & set(found[COST].headings)
    assert "The paper's claims: collateral damage" not in found
    assert "WikiText" not in found
    assert "The paper's claims: expected max toxicity" in found


def test_with_one_scorer_no_column_names_another():
    record = toxicity_record(main_configurations(scorers=("linear",)), scorers=("linear",))
    found = tables(record)
    assert found["Toxicity"].headings == (
        "configuration",
        "expected max toxicity",
        "change from base",
        "toxicity probability",
        "change from base",
    )
    assert not any("bilstm" in word for table in found.values() for word in (table.title, *table.headings))


def test_a_record_of_nothing_but_the_base_fails_nowhere():
    bare = toxicity_record([Configured("base")], scorers=(), examples=(), wikitext={}, fluency={}, prompts={})
    assert [table.title for table in toxicity_tables(bare)] == ["Published beside ours"]
    assert "Scorers" not in tables(bare)
    assert toxicity_summary_table([bare]).rows[0][6:9] == ("–", "–", "–")


def test_ablations_hold_everything_but_one_choice():
    record = toxicity_record()
    for choice in ("strength", "rows", "shrinkage", "fit"):
        table = tables(record)[f"Ablation: {choice}"]
        assert len(columns(table, choice)[0]) > 1
    strengths = tables(record)["Ablation: strength"]
    assert columns(strengths, "strength") == [["0.25", "0.5", "1", "2"]]
    assert set(columns(strengths, "method")[0]) == {"mean"}
    (shown,) = columns(strengths, "expected max toxicity")
    assert [parsed(cell)[0] for cell in shown] == [0.221, 0.196, 0.147, 0.098]
    assert columns(tables(record)["Ablation: rows"], "rows") == [["1000", "1500", "2000"]]
    # the gate of on-policy maps changes together with the fit, so no pair tells its part
    assert "Ablation: gate" not in tables(record)


def test_an_ablation_appears_when_its_pair_does():
    twin = configured("twin", (0.2, 30.0, 0.4), **choices_of("mean", "selective", gate="calibrated"))
    table = tables(toxicity_record([*main_configurations(), twin]))["Ablation: gate"]
    assert columns(table, "gate") == [["nearest-mean", "calibrated"]]
    assert "Ablation: strength" not in tables(toxicity_record([*main_configurations(), twin]))


def test_all_configurations_stand_under_their_choices_grouped_by_fit():
    record = toxicity_record()
    table = tables(record)["Ablation: by choices"]
    assert len(table.rows) == len(record.configurations) - 1
    fits = columns(table, "fit")[0]
    assert fits == sorted(fits, key=["last", "tokens", "on-policy"].index)
    assert "site" not in table.headings  # it never changes
    assert not any(title.startswith("Ablation") for title in tables(toxicity_record(main_configurations())))


def test_certificates_are_shown_fitted_and_held_out():
    table = tables(toxicity_record())["Certificates"]
    row = dict(zip(table.headings, table.rows[4], strict=True))
    assert row["configuration"] == "leace, selective"
    assert row["rows: source / target"] == "1,540 / 34,383"
    assert row["mean gap before"] == "3.25" and row["mean gap, fitted"] == "1e-14"
    assert row["claims"] == "contradicted" and row["gate's Youden J"] == "0.930"
    assert "base" not in columns(table, "configuration")[0]
    bare = [replace(c, certificate=None, held_out=None, supported=None) for c in main_configurations()]
    assert "Certificates" not in tables(toxicity_record(bare))


def test_facts_name_scorers_data_and_every_option():
    record = toxicity_record()
    found = tables(record)
    scorers = {row[0]: row[1:] for row in found["Scorers"].rows}
    assert scorers["digest"] == ("ab" * 32, "cd" * 32)
    assert scorers["auc"] == ("0.883", "0.971") and scorers["spearman"] == ("–", "0.740")
    assert [row[0] for row in found["Options"].rows] == list(record.spec)
    assert found["Texts by label"].rows == (("toxic", "15,294"), ("non-toxic", "144,277"))
    assert dict(found["WikiText"].rows)["documents"] == "8"
    assert columns(found["Facts by configuration"], "texts without score")[0][0] == "3"
    assert cautions(record) == ["Labels are those of crowd workers.", "One run, one seed."]


def test_the_summary_names_the_lowest_toxicity_and_what_it_cost():
    table = toxicity_summary_table([toxicity_record(), toxicity_record(main_configurations())], first=4)
    assert columns(table, "study") == [["4", "5"]]
    # the lowest of the second study, .104, is that of a model with eight times the perplexity
    assert columns(table, "expected max toxicity: base → lowest usable") == [
        [".241 → .098 (mean, all (2))", ".241 → .147 (mean, all)"]
    ]
    assert columns(table, "WikiText per word")[0][1] == "29.03 → 30.52"
    other = with_measure(toxicity_record(), "leace, all", "linear.expected_max_toxicity", 0.01)
    assert "leace, all" in toxicity_summary_table([other]).rows[0][6]
