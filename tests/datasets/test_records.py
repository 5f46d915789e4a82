import dataclasses

import pytest

from repsurgery.datasets import LabelledTexts
from repsurgery.errors import DataError, LabelError


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
