import math

import numpy as np
import pytest

import repsurgery as rs
from repsurgery.studies.common.report.certificates import certificate_table
from repsurgery.studies.common.report.numbers import number
from repsurgery.studies.toxicity.report.short_tables import certificates_table, outcomes_table
from repsurgery.studies.toxicity.vectors import Labelled, Vectors
from tests.strategies import make_concept
from tests.studies.report.records import small_record


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.0, "0"),
        (0.5, "0.500"),
        (12.345, "12.3"),
        (1234.5, "1234"),
        (3.2e-16, "3e-16"),
        (math.nan, "none"),
        (math.inf, "∞"),
    ],
)
def test_numbers_are_short_and_never_hide_a_missing_value(value, shown):
    assert number(value) == shown


def test_tables_have_as_many_cells_as_headings():
    record = small_record()
    for table in (outcomes_table(record), certificates_table(record)):
        assert {len(row) for row in table.rows} == {len(table.headings)}
    assert len(outcomes_table(record).rows) == 7
    assert len(certificates_table(record).rows) == 2 * (1 + 5)


def test_dropped_generations_are_told():
    assert "(1 dropped)" in outcomes_table(small_record()).rows[1][4]


@pytest.mark.parametrize("labels", [(1, 0), (True, False), (0.0, 1.0), ("", "a"), ("a", ""), (" ", "a")])
def test_every_target_is_named_also_one_that_counts_as_nothing(labels):
    source, target = labels
    X, z = make_concept(0)
    certificate = rs.MeanMatching(source=source, target=target).fit(X, np.array(labels)[z]).certificate_
    assert certificate_table(certificate).headings == ("measure", f"{seen(source)} → {seen(target)}")


@pytest.mark.parametrize("eraser", [rs.LEACE(), rs.BarycenterErasure()])
def test_an_eraser_has_no_target(eraser):
    X, z = make_concept(0)
    certificate = eraser.fit(X, np.array(["a", "b"])[z]).certificate_
    assert certificate_table(certificate).headings == ("measure", "a → erased", "b → erased")


def seen(label):
    return {"": "''", " ": "' '"}.get(label, str(label))


def test_few_rows_support_nothing_and_show_no_probe_that_explains_everything():
    rng = np.random.default_rng(0)
    z = np.repeat(["rude", "courteous"], 20)
    rows = [rng.normal(size=(40, 100)) + 0.5 * (z == "rude")[:, None] for _ in range(2)]
    fitted, fresh = ({"final": Labelled(X.astype(np.float32), z)} for X in rows)
    table = certificates_table(small_record(vectors=Vectors(fitted, fresh)))
    probe, claims = (table.headings.index(name) for name in ("probe R²", "claims"))
    assert {row[claims] for row in table.rows if row[1] == "held out"} == {"–", "cannot tell"}
    assert {row[probe] for row in table.rows if row[1] == "held out"} == {"–"}
    assert {row[claims] for row in table.rows if row[1] == "fitted"} == {"–"}
