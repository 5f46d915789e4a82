import dataclasses

import numpy as np
import pytest

from repsurgery.datasets import ConceptTexts, LabelledTexts
from repsurgery.errors import DataError, LabelError, ShapeError


def record(texts=("a", "b"), labels=("x", "y")):
    return LabelledTexts(texts, labels, name="n", source="s")


def test_the_digest_depends_on_texts_labels_and_order_alone():
    assert record().digest == LabelledTexts(("a", "b"), ("x", "y"), name="m", source="t", licence="u").digest
    others = [record(("b", "a"), ("y", "x")), record(("a", "c")), record(labels=("x", "x")), record(("ax", "b"))]
    assert len({record().digest, *(other.digest for other in others)}) == 5


def test_a_record_is_frozen_and_keeps_tuples():
    kept = record(["a", "b"], ["x", "y"])
    assert kept.texts == ("a", "b")
    assert len(kept) == 2
    assert kept.counts == {"x": 1, "y": 1}
    with pytest.raises(dataclasses.FrozenInstanceError):
        kept.name = "other"


def test_every_text_needs_content_and_a_label():
    with pytest.raises(LabelError, match="2 texts and 1 labels"):
        record(labels=("x",))
    with pytest.raises(DataError, match="text 1 is empty"):
        record(texts=("a", " "))
    with pytest.raises(LabelError, match="text 0 has no label"):
        record(labels=("", "y"))


def study(texts=("a", "b", "c"), labels=("x", "y", "x"), concepts=("f", "m", "m"), splits=("train", "dev", "test")):
    return ConceptTexts(texts, labels, concepts, splits, name="n", source="s", cautions=["mind this"])


def test_the_digest_of_a_study_depends_on_its_rows_alone():
    same = ConceptTexts(study().texts, study().labels, study().concepts, study().splits, name="m", source="t")
    assert same.digest == study().digest
    others = [
        study(texts=("a", "b", "d")),
        study(labels=("x", "y", "y")),
        study(concepts=("f", "m", "f")),
        study(splits=("train", "dev", "dev")),
        study(splits=()),
        study().where([2, 1, 0]),
    ]
    assert len({study().digest, *(other.digest for other in others)}) == 7


def test_a_study_is_frozen_and_counts_every_pair():
    kept = study(list("abc"), list("xyx"), list("fmm"), [])
    assert (kept.texts, kept.splits, len(kept)) == (("a", "b", "c"), (), 3)
    assert kept.counts == {"x": {"f": 1, "m": 1}, "y": {"f": 0, "m": 1}}
    with pytest.raises(dataclasses.FrozenInstanceError):
        kept.name = "other"


def test_where_keeps_rows_together():
    by_index = study().where(np.array([2, 0]))
    assert (by_index.texts, by_index.labels) == (("c", "a"), ("x", "x"))
    assert (by_index.concepts, by_index.splits) == (("m", "f"), ("test", "train"))
    assert (by_index.name, by_index.source, by_index.cautions) == ("n", "s", ("mind this",))
    assert study().where([True, False, True]) == study().where([0, 2])
    assert len(study().where([])) == 0
    assert study(splits=()).where([1]).splits == ()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([True, False], "2 booleans for 3 texts"),
        ([0, 3], "outside 0 to 2"),
        ([-1], "outside 0 to 2"),
        ([0.5], "dtype float64"),
        ([[0], [1]], r"shape \(2, 1\)"),
    ],
)
def test_where_refuses_rows_that_are_not_there(rows, message):
    with pytest.raises(ShapeError, match=message):
        study().where(rows)


def test_every_row_of_a_study_is_whole():
    with pytest.raises(LabelError, match=r"3 texts and 2 concepts\. Give each text one concept"):
        study(concepts=("f", "m"))
    with pytest.raises(LabelError, match="text 1 has no concept"):
        study(concepts=("f", " ", "m"))
    with pytest.raises(LabelError, match="3 texts and 1 splits"):
        study(splits=("train",))
    with pytest.raises(LabelError, match=r"label of text 2 is a int\. Give labels as strings"):
        study(labels=("x", "y", 1))
    with pytest.raises(DataError, match="text 0 is empty"):
        study(texts=("\n", "b", "c"))
    with pytest.raises(DataError, match="text 1 is a NoneType"):
        study(texts=("a", None, "c"))
