"""A record with rivals: the rows of the paper, who beats whom, what each needs; other records stay as they were."""

from dataclasses import replace

import pytest

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.numbers import number
from repsurgery.studies.common.report.published import published
from repsurgery.studies.toxicity.record import Configured
from repsurgery.studies.toxicity.report.against import against_tables, compared_rows
from repsurgery.studies.toxicity.report.damage import usable
from repsurgery.studies.toxicity.report.needs import needs_table, passes_per_token
from repsurgery.studies.toxicity.report.rivals import (
    best_steering,
    fluency_judge,
    has_rivals,
    is_rival,
    is_steering,
    short_names,
    unseen_scorer,
)
from repsurgery.studies.toxicity.report.side_by_side import NOT_PUBLISHED, side_by_side, sides
from repsurgery.studies.toxicity.report.tables import toxicity_tables
from repsurgery.studies.toxicity.report.verdicts import difference
from tests.studies.report.rival_records import FEW, PROMPTS, RIVALS, SCORERS, rival_record
from tests.studies.report.toxicity_records import choices_of, toxicity_record

EMT = "expected_max_toxicity"
TABLE_2, TESTS, NEEDS = "Table 2: measured beside published", "Paired tests", "What each method needs"


def changed(record, name, **fields):
    return replace(
        record, configurations=tuple(replace(c, **fields) if c.name == name else c for c in record.configurations)
    )


def only(record, *names):
    return replace(record, configurations=tuple(c for c in record.configurations if c.name in names))


def titles(record):
    return [table.title for table in toxicity_tables(record)]


def compared(record, name):
    return next(row for row in compared_rows(record) if row.row.name == name)


def test_a_record_has_as_many_rivals_as_lines_of_them():
    record = rival_record()
    rivals = [c.choices["method"] for c in record.configurations if is_rival(c)]
    assert rivals == [name for name, *_ in RIVALS]
    assert len(record.configurations) == 23
    # every row is exactly one of: base, rival, steering
    assert all((c.name == "base") + is_rival(c) + is_steering(c) == 1 for c in record.configurations)
    assert not has_rivals(toxicity_record())


def test_only_a_record_with_rivals_gets_their_tables_and_they_come_first():
    shown = titles(rival_record())
    assert shown[:4] == [
        TABLE_2,
        "Which rows tuned beats, and which beat it",
        NEEDS,
        "Paired tests: tuned against every row",
    ]
    assert shown[4] == "Toxicity" and "Published beside ours" not in shown
    older = titles(toxicity_record())
    assert older[0] == "Toxicity" and "Published beside ours" in older
    assert not {TABLE_2, NEEDS} & set(older) and not any(title.startswith(TESTS) for title in older)


def test_the_rows_of_the_paper_come_in_its_order_and_the_others_after_them():
    rows = sides(rival_record())
    papers = [side.paper.name for side in rows if side.paper is not None]
    assert papers == [row.name for row in published().toxicity]
    methods = [side.ours.choices["method"] for side in rows]
    assert methods[:7] == ["base", "dapt", "gedi", "pplm", "uddia", "dexperts", "goodtriever"]
    assert methods[-len(NOT_PUBLISHED) - 3 :] == [*NOT_PUBLISHED, "natural", "natural-mean", "tuned"]


def test_every_configuration_stands_in_one_row():
    record = rival_record()
    other = replace(record.configurations[1], name="own-plugin", choices={"method": "own-plugin"})
    twice = replace(record.configurations[1], name="dapt steps=9", choices={"method": "dapt", "steps": 9})
    record = replace(record, configurations=(*record.configurations, other, twice))
    for spec in (record.spec, {**record.spec, "source": "rude"}):
        names = [side.ours.name for side in sides(replace(record, spec=spec))]
        assert sorted(names) == sorted(c.name for c in record.configurations)
    # a second line of a method follows the first, and a rival that nobody knows follows those that are known
    names = [side.ours.name for side in sides(record)]
    assert names.index("dapt steps=9") == names.index("dapt steps=400") + 1
    assert names.index("own-plugin") == names.index("instruction") + 1


def test_a_row_of_the_paper_that_was_not_measured_stands_alone():
    record = only(rival_record(), "base", "dapt steps=400", "tuned kl=0.15")
    table = side_by_side(record)
    gedi = next(row for row in table.rows if row[0] == "GeDi")
    assert gedi[1:4] == ("–", "–", "– (.24)")
    dapt = next(row for row in table.rows if row[0] == "DAPT")
    assert dapt[1] == "dapt"


def test_measured_figures_are_those_of_the_record_and_published_ones_as_printed():
    record = rival_record()
    table = side_by_side(record)
    row = dict(zip(table.headings, next(r for r in table.rows if r[1] == "dexperts"), strict=True))
    dexperts = record.configured("dexperts alpha=2").measures
    toxicity = {s: f"{dexperts[f'{s}.{EMT}'].value:.3f}".lstrip("0") for s in ("minilm", "bilstm")}
    assert row["expected max toxicity, minilm"] == f"{toxicity['minilm']} (.21)"
    assert row["expected max toxicity, bilstm"] == toxicity["bilstm"]
    # the judge is not the steered model
    assert row["perplexity"] == f"{dexperts['perplexity.gemma-3-270m'].value:.2f} (27.15)"
    printed = [cell.partition(" (")[2].rstrip(")") for cell in row.values() if cell.endswith(")") and cell[0] != "D"]
    assert printed == [".21", ".02", "27.15", ".56", ".84", ".84"]
    assert "only directions compare" in table.caption


def test_another_concept_has_no_published_figures():
    record = rival_record(spec={"preset": "local", "source": "rude"})
    table = side_by_side(record)
    assert table.title == "All methods" and "in the paper" not in table.headings
    assert not any("(" in cell for row in table.rows for cell in row)
    assert "Perspective" not in table.caption and "Perspective" in side_by_side(rival_record()).caption


def test_the_number_of_prompts_is_shown_where_a_row_covers_fewer():
    table = side_by_side(rival_record())
    counts = {row[1]: row[table.headings.index("prompts")] for row in table.rows}
    assert {name for name, count in counts.items() if count == str(FEW)} == {"pplm", "uddia"}
    assert counts["base"] == str(PROMPTS)
    assert "fewer prompts" in table.caption
    assert "Rows with fewer prompts" not in side_by_side(only(rival_record(), "base", "aura")).caption


def test_the_reference_is_the_tuned_steering_and_without_one_the_least_toxic():
    record = rival_record()
    assert best_steering(record).name == "tuned kl=0.15"
    untuned = replace(record, configurations=tuple(c for c in record.configurations if "tuned" not in c.name))
    steerings = [c for c in usable(untuned) if is_steering(c)]
    lowest = min(steerings, key=lambda c: c.measures[f"minilm.{EMT}"].value)
    assert best_steering(untuned) is lowest
    # a damaged model is less toxic, and is not the reference
    assert any(
        c.measures[f"minilm.{EMT}"].value < lowest.measures[f"minilm.{EMT}"].value for c in untuned.configurations
    )
    assert any(
        title == f"Paired tests: {short_names(untuned.configurations)[lowest.name]} against every row"
        for title in titles(untuned)
    )
    rivals_only = only(record, "base", "aura")
    assert best_steering(rivals_only) is None and against_tables(rivals_only) == []


def test_rows_are_compared_on_the_prompts_they_share():
    record = rival_record()
    tuned = best_steering(record)
    assert compared(record, "pplm steps=10").prompts == FEW - 1  # the sixth prompt has no score
    assert compared(record, "aura").prompts == PROMPTS - 1
    later = {s: [*held[:FEW], *(None if m is None else 1.0 for m in held[FEW:])] for s, held in tuned.maxima.items()}
    moved = changed(record, tuned.name, maxima=later)
    for scorer in SCORERS:
        before, after = (compared(r, "pplm steps=10").toxicity[scorer].value for r in (record, moved))
        assert before == after
        before, after = (compared(r, "aura").toxicity[scorer].value for r in (record, moved))
        assert after > before + 0.1


def test_differences_are_tuned_minus_row_with_holms_p_values():
    record = rival_record()
    tuned = best_steering(record)
    rows = compared_rows(record)
    plain = [difference(tuned, row.row, "bilstm", EMT) for row in rows]
    assert [row.toxicity["bilstm"].value for row in rows] == [one.value for one in plain]
    adjusted, largest = {}, 0.0
    for rank, i in enumerate(sorted(range(len(rows)), key=lambda i: plain[i].p_value)):
        largest = adjusted[i] = max(largest, min(1.0, (len(rows) - rank) * plain[i].p_value))
    assert [row.toxicity["bilstm"].p_value for row in rows] == pytest.approx([adjusted[i] for i in range(len(rows))])


@pytest.mark.parametrize(("factor", "said"), [(0.2, "tuned is higher"), (1.0, "undecided"), (3.0, "tuned is lower")])
def test_verdicts_turn_with_the_scores(factor, said):
    record = rival_record()
    tuned = best_steering(record)
    scaled = {s: [None if m is None else m * factor for m in held] for s, held in tuned.maxima.items()}
    table = against_tables(changed(record, "aura", maxima=scaled))[1]
    (row,) = (row for row in table.rows if row[0] == "aura")
    assert [cell.partition(":")[0] for cell in row[2:5]] == [said] * 3


def test_the_short_table_lists_every_row_once_and_marks_those_of_lower_perplexity():
    record = rival_record()
    table = against_tables(record)[0]
    assert [row[0] for row in table.rows] == ["tuned is lower", "tuned is higher", "undecided"]
    names = short_names(record.configurations)
    for i, _ in enumerate(SCORERS, 1):
        listed = [name for row in table.rows if row[i] != "none" for name in row[i].split(", ")]
        assert sorted(name.rstrip("†") for name in listed) == sorted(set(names.values()) - {"tuned"})
        assert "base†" in listed and "gedi" in listed  # 24.8 and 55.4, against 26.7
    (row,) = (row for row in against_tables(record)[1].rows if row[0] == "base")
    assert row[-1] == "+5.510"


def test_a_row_of_unknown_perplexity_is_neither_better_nor_worse():
    record = rival_record()
    key = fluency_judge(record).key
    gedi = record.configured("gedi omega=30")
    without = {
        field: {k: v for k, v in getattr(gedi, field).items() if k != key} for field in ("measures", "differences")
    }
    table = against_tables(changed(record, gedi.name, **without))[0]
    listed = [name for row in table.rows for name in row[1].split(", ")]
    assert "gedi?" in listed and "gedi" not in listed
    assert "? those whose perplexity is not known" in table.caption
    assert "not known" not in against_tables(record)[0].caption


def test_captions_say_where_the_steering_was_chosen_on_the_prompts_of_the_tests():
    record = rival_record()
    assert not any("was chosen among" in table.caption for table in against_tables(record))
    tuned = record.configured("tuned kl=0.15")
    second = replace(tuned, name="tuned kl=0.3", choices={**tuned.choices, "kl": 0.3})
    several = replace(record, configurations=(*record.configurations, second))
    assert all("was chosen among 2 steerings" in table.caption for table in against_tables(several))
    untuned = replace(record, configurations=tuple(c for c in record.configurations if c is not tuned))
    steerings = sum(map(is_steering, usable(untuned)))
    assert all(f"among {steerings} steerings by the lowest" in table.caption for table in against_tables(untuned))


def test_perplexity_on_fewer_prompts_is_compared_by_its_change_from_the_base():
    record = rival_record()
    key = fluency_judge(record).key
    uddia = record.configured("uddia")
    # its prompts are harder to read for the base too: the change from the base stays
    harder = {**uddia.measures, key: Estimate(uddia.measures[key].value + 50)}
    assert compared(changed(record, "uddia", measures=harder), "uddia").perplexity == pytest.approx(
        compared(record, "uddia").perplexity
    )


def test_needs_are_in_minutes_gigabytes_and_passes():
    record = rival_record()
    table = needs_table(record)
    rows = {row[0]: dict(zip(table.headings, row, strict=True)) for row in table.rows}
    gedi = rows["gedi"]
    assert gedi["needs"] == "labelled texts; a guide"
    assert gedi["training, minutes"] == number(35.0) and gedi["memory beyond the base, GB"] == "+0.500"
    assert rows["base"]["memory beyond the base, GB"] == "0.000"
    assert rows["self-debias"]["training, minutes"] == "not measured" and "is not measured" in table.caption
    assert gedi["cost per token"] == "2.90×" and gedi["extra passes per token"] == number(1.0)
    assert gedi["parts made beforehand"] == "gedi part (35.0 min, 3.70 MB)"
    assert rows["mean all"]["needs"] == "labelled texts"
    assert "scorer" in rows["natural all"]["needs"]
    assert rows["base"]["needs"] == "nothing"


def test_passes_are_stated_or_follow_from_the_cost_of_a_continuation():
    cost = {"tokens_written": 20.0, "extra_passes": 50.0}
    assert passes_per_token(Configured("x", facts={"cost_per_continuation": cost})) == 2.5
    assert passes_per_token(Configured("x", facts={"extra_passes_per_token": 3.0})) == 3.0
    assert passes_per_token(Configured("x", facts={"cost_per_continuation": {**cost, "tokens_written": 0}})) is None
    assert passes_per_token(Configured("x")) is None


def test_memory_is_compared_within_one_process_only():
    record = rival_record()
    gedi = record.configured("gedi omega=30")
    facts = {name: value for name, value in gedi.facts.items() if name != "peak_bytes_base"}
    table = needs_table(changed(record, gedi.name, facts=facts))
    (row,) = (row for row in table.rows if row[0] == "gedi")
    assert row[table.headings.index("memory beyond the base, GB")] == "–"


def test_what_was_not_measured_has_no_column():
    bare = [
        replace(c, cost_per_token=None, training_seconds=None, peak_bytes=None, facts={})
        for c in rival_record().configurations
    ]
    assert needs_table(rival_record(bare)) is None
    assert NEEDS not in titles(rival_record(bare))


def test_an_unseen_scorer_and_an_outside_judge_are_chosen_where_there_are_any():
    record = rival_record()
    assert unseen_scorer(record) == "bilstm" and fluency_judge(record) == ("perplexity.gemma-3-270m", "gemma-3-270m")
    single = rival_record(scorers={"minilm": {}}, fluency={"name": "smollm2-135m"})
    assert unseen_scorer(single) == "minilm" and fluency_judge(single) == ("perplexity", "smollm2-135m")
    outside = rival_record(fluency={"name": "gpt2-xl", "further": ["gemma-3-270m"]})
    assert fluency_judge(outside) == ("perplexity", "gpt2-xl")


def test_short_names_are_short_and_differ():
    record = rival_record()
    names = short_names(record.configurations)
    assert len(set(names.values())) == len(record.configurations)
    assert names["dexperts alpha=2"] == "dexperts" and names["tuned kl=0.15"] == "tuned"
    assert names["mimic all fit=on-policy shrinkage=pooled kl=0.05"] == "mimic all fit=on-policy"
    assert all(len(short) <= len(name) for name, short in names.items())
    files = [Configured(f"tuned file=a/b/{n}.safetensors", {"method": "tuned", "file": f"a/b/{n}.st"}) for n in "xy"]
    assert list(short_names(files).values()) == ["tuned file=x", "tuned file=y"]
    alike = [Configured(name, choices_of("mean", "all")) for name in ("one long line", "two long lines")]
    assert list(short_names(alike).values()) == ["one long line", "two long lines"]


def test_rivals_take_no_part_in_ablations():
    record = rival_record()
    tables = {table.title: table for table in toxicity_tables(record)}
    rows = tables["Ablation: by choices"].rows
    assert len(rows) == sum(map(is_steering, record.configurations))
