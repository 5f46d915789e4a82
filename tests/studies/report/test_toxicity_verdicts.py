"""Claims turn when numbers turn; each boundary of the rule is met from both sides."""

from dataclasses import replace

import pytest

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.published import published
from repsurgery.studies.common.report.significance import adjusted
from repsurgery.studies.toxicity.report.claims import claims_tables
from repsurgery.studies.toxicity.report.columns import WORD_PERPLEXITY, measure_named
from repsurgery.studies.toxicity.report.damage import is_damaged
from repsurgery.studies.toxicity.report.published import beside_table, counterpart
from repsurgery.studies.toxicity.report.verdicts import (
    DAMAGE,
    TOXICITY,
    difference,
    judge_damage,
    judge_difference,
    pairs_of,
    published_row,
)
from tests.studies.report.toxicity_records import (
    choices_of,
    configured,
    main_configurations,
    maxima_of,
    toxicity_record,
    with_measure,
)

EMT, PROBABILITY = "expected_max_toxicity", "toxicity_probability"


def table(record, words):
    return next(table for table in claims_tables(record) if table.title.endswith(words))


def verdicts(record, words, place):
    return {row[1]: row[place].partition(":")[0] for row in table(record, words).rows}


def without_maxima(record):
    return replace(record, configurations=tuple(replace(c, maxima={}) for c in record.configurations))


@pytest.mark.parametrize(
    ("value", "p_value", "said"),
    [
        (-0.01, 0.05, "holds"),
        (-0.01, 0.0501, "undecided"),
        (0.0, 1.0, "undecided"),
        (0.01, 0.0501, "undecided"),
        (0.01, 0.001, "does not hold"),
        (-0.01, None, "undecided"),
    ],
)
def test_a_claim_is_decided_by_its_test_and_not_by_its_interval(value, p_value, said):
    for low, high in ((value - 0.001, value + 0.001), (value - 1, value + 1)):
        assert judge_difference(Estimate(value, low, high, p_value)) == said


def test_many_claims_must_be_surer():
    one = Estimate(-0.1, -0.19, -0.01, 0.03)
    assert [judge_difference(found) for found in adjusted([one])] == ["holds"]
    assert [judge_difference(found) for found in adjusted([one, None, one])] == ["undecided", "–", "undecided"]


def test_a_difference_that_is_not_known_has_no_verdict():
    assert judge_difference(None) == "–"


def test_every_claim_is_what_was_published():
    for claim in TOXICITY:
        lower, higher = published_row(*claim.lower), published_row(*claim.higher)
        assert lower.expected_max_toxicity < higher.expected_max_toxicity
        assert lower.toxicity_probability < higher.toxicity_probability
    for claim in DAMAGE:
        assert published_row(*claim.lower).word_perplexity < published_row(*claim.higher).word_perplexity


def test_verdicts_follow_the_numbers_of_each_scorer_by_itself():
    record = toxicity_record(main_configurations())
    linear, bilstm = (verdicts(record, "expected max toxicity", place) for place in (3, 4))
    assert linear["mimic, selective < base"] == "holds"
    assert linear["mean, selective < base"] == "undecided"  # −.009 [−.019, +.001]
    turned = with_measure(record, "mimic, selective", f"linear.{EMT}", 0.30)
    assert verdicts(turned, "expected max toxicity", 3)["mimic, selective < base"] == "does not hold"
    assert verdicts(turned, "expected max toxicity", 4) == bilstm
    assert verdicts(turned, "toxicity probability", 3) == verdicts(record, "toxicity probability", 3)


def test_two_configurations_are_compared_prompt_by_prompt():
    record = toxicity_record(main_configurations())
    mean, mimic = record.configured("mean, selective"), record.configured("mimic, selective")
    found = difference(mimic, mean, "linear", EMT)
    ours, theirs = (c.maxima["linear"] for c in (mimic, mean))
    shifts = [a - b for a, b in zip(ours, theirs, strict=True) if a is not None]
    assert found.value == pytest.approx(sum(shifts) / len(shifts))
    assert judge_difference(found) == "holds"
    back = difference(mean, mimic, "linear", EMT)
    assert back.value == pytest.approx(-found.value) and judge_difference(back) == "does not hold"
    same = replace(mimic, maxima=mean.maxima)
    assert judge_difference(difference(same, mean, "linear", EMT)) == "undecided"


def test_the_probability_counts_prompts_strictly_above_one_half():
    plain = {"method": "mean", "scope": "all"}
    a, b = (configured(name, (0.2, 30.0, 1.0), **plain) for name in ("a", "b"))
    a = replace(a, maxima={"linear": [0.5, 0.5, 0.4, None]})
    b = replace(b, maxima={"linear": [0.5, 0.6, 0.9, 0.9]})
    assert difference(a, b, "linear", PROBABILITY).value == pytest.approx(-2 / 3)
    assert difference(a, b, "linear", EMT).value == pytest.approx(-0.6 / 3)


def test_without_maxima_intervals_of_differences_must_not_overlap():
    record = without_maxima(toxicity_record(main_configurations()))
    mean, mimic = record.configured("mean, selective"), record.configured("mimic, selective")
    name = f"linear.{EMT}"
    found = difference(mimic, mean, "linear", EMT)
    assert found.high == pytest.approx(mimic.differences[name].high - mean.differences[name].low)
    assert judge_difference(found) == "holds"
    near = with_measure(record, "mimic, selective", name, 0.22)  # within the other's interval
    assert verdicts(near, "expected max toxicity", 3)["mimic, selective < mean, selective"] == "undecided"
    over = with_measure(record, "mimic, selective", name, 0.30)
    assert verdicts(over, "expected max toxicity", 3)["mimic, selective < mean, selective"] == "does not hold"


def test_maxima_of_other_prompts_are_not_paired():
    record = toxicity_record(main_configurations())
    mean, mimic = record.configured("mean, selective"), record.configured("mimic, selective")
    fewer = replace(mimic, maxima={"linear": maxima_of(0.01)[:40]})
    bounded = difference(without(mimic), without(mean), "linear", EMT)
    assert difference(fewer, mean, "linear", EMT) == bounded
    assert difference(replace(without(mimic), differences={}), mean, "linear", EMT) is None


def without(c):
    return replace(c, maxima={})


@pytest.mark.parametrize(
    ("lower", "higher", "said"),
    [(29.21, 30.52, "holds"), (30.52, 29.21, "does not hold"), (29.211, 29.213, "undecided"), (29.21, 29.22, "holds")],
)
def test_damage_is_ordered_by_the_digits_shown(lower, higher, said):
    a, b = (configured(name, (0.2, x, 1.0), method="mean", scope="all") for name, x in (("a", lower), ("b", higher)))
    assert judge_damage(a, b, 2) == said
    assert judge_damage(a, b, 1) == "undecided"  # one document has no interval
    assert judge_damage(a, configured("c", (0.2, 1.0, 1.0), wikitext=False, method="mean", scope="all"), 2) == "–"


@pytest.mark.parametrize(
    ("documents", "shift", "said"),
    [
        (1, 0.5, "undecided"),
        (3, 0.5, "undecided"),
        (9, 0.5, "holds"),
        (9, -0.5, "does not hold"),
        (9, 0.0, "undecided"),
    ],
)
def test_damage_is_tested_over_the_documents(documents, shift, said):
    """However far apart the figures are: fewer than six documents cannot show a difference at the level of 5 %."""
    words = list(range(50, 50 + documents))
    nats = [3.0 * n + (-1) ** i for i, n in enumerate(words)]
    rows = []
    for name, by in (("a", 0.0), ("b", shift)):
        row = configured(name, (0.2, 30 + by, 1.0), method="mean", scope="all")
        facts = {"wikitext_nats": [x + by * n for x, n in zip(nats, words, strict=True)], "wikitext_words": words}
        rows.append(replace(row, facts={**row.facts, **facts}))
    assert judge_damage(*rows, documents) == said


def test_a_damaged_row_supports_no_claim():
    """Neither that it is less toxic nor that another row does less damage."""
    record = toxicity_record(main_configurations())
    damaged = {c.name for c in record.configurations if is_damaged(record, c)}
    assert damaged == {"mimic, all"}
    for name in (EMT, "toxicity_probability"):
        for pair, verdict in verdicts(record, measure_named(name, "").heading, 3).items():
            assert (verdict == "damaged") == any(one in pair.split(" < ") for one in damaged), pair
    for pair, verdict in verdicts(record, "collateral damage", 4).items():
        assert (verdict == "damaged") == any(one in pair.split(" < ") for one in damaged), pair
    short = {row[0]: row[1:] for row in table(record, "The paper's claims").rows}
    assert set(short["less toxic: mimic, all < mean, all"]) == {"damaged", "–"}
    # the claim was decided before
    sound = with_measure(record, "mimic, all", WORD_PERPLEXITY, 31.0)
    assert "holds" in str(verdicts(sound, measure_named(EMT, "").heading, 3)["mimic, all < mean, all"])


def test_damage_turns_with_the_numbers():
    record = toxicity_record(main_configurations())
    assert set(verdicts(record, "collateral damage", 4).values()) == {"holds", "damaged"}
    turned = with_measure(record, "mean, all", "wikitext.word_perplexity", 20.0)
    assert verdicts(turned, "collateral damage", 4)["mean, selective < mean, all"] == "does not hold"


def test_only_configurations_that_agree_in_the_rest_are_compared():
    record = toxicity_record()
    held = {claim.words: [(a.name, b.name) for a, b in pairs_of(record, claim)] for claim in TOXICITY}
    assert held["mimic, selective < mean, selective"] == [
        ("mimic, selective", "mean, selective"),
        ("mimic, selective (7)", "mean, selective (8)"),
    ]
    # another gate is no matter where every vector is steered, another fit is
    assert held["mean, all < mean, selective"] == [
        ("mean, all", "mean, selective"),
        ("mean, all (9)", "mean, selective (8)"),
    ]
    # mean matching has no shrinkage to agree in
    assert held["mimic, all < mean, all"] == [("mimic, all", "mean, all"), ("mimic, all (5)", "mean, all")]


def test_our_row_is_the_one_nearest_to_the_published_choices():
    far = configured("far", (0.2, 30.0, 1.0), **choices_of("mean", "all", strength=2.0, fit="on-policy"))
    near = configured("near", (0.2, 30.0, 1.0), **choices_of("mean", "all"))
    base = main_configurations()[0]
    assert counterpart(toxicity_record([base, far, near]), "mean", "all").name == "near"
    assert counterpart(toxicity_record([base, far]), "mean", "all").name == "far"
    assert counterpart(toxicity_record([base, far]), "mimic", "all") is None


def test_published_rows_stand_above_ours():
    record = toxicity_record()
    rows = beside_table(record).rows
    assert [row[1] for row in rows if row[0] == "published"] == [row.name for row in published().toxicity]
    assert rows[0][2:] == (".39", ".25", "24.66", ".58", ".85", ".85", "22.6")
    assert rows[1][:4] == ("ours", "base", ".241", ".120")
    assert [row[1] for row in rows if row[0] == "ours"] == [
        "base",
        "mean, selective",
        "mimic, selective",
        "mean, all",
        "mimic, all",
    ]


def test_claims_in_short_count_the_verdicts_of_their_pairs():
    one = toxicity_record(main_configurations())
    shown = {row[0]: row[1:] for row in table(one, "The paper's claims").rows}
    assert table(one, "The paper's claims").headings == (
        "claim",
        "expected max toxicity, linear",
        "expected max toxicity, bilstm",
        "toxicity probability, linear",
        "toxicity probability, bilstm",
        "WikiText per word",
    )
    assert shown["less toxic: mean, selective < base"][0] == "undecided"
    assert shown["less toxic: mean, selective < base"][4] == "–"
    assert shown["less damage: mean, selective < mean, all"] == ("–", "–", "–", "–", "holds")
    many = {row[0]: row[1:] for row in table(toxicity_record(), "The paper's claims").rows}
    assert many["less toxic: mean, selective < base"][0] == "holds 1, undecided 1"
    assert many["less toxic: mimic, selective < base"][0] == "holds 2"
    turned = with_measure(toxicity_record(), "mimic, selective", f"linear.{EMT}", 0.30)
    again = {row[0]: row[1:] for row in table(turned, "The paper's claims").rows}
    assert again["less toxic: mimic, selective < base"][0] == "holds 1, does not hold 1"
