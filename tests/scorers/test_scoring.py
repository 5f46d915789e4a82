import math
from dataclasses import dataclass

import numpy as np
import pytest

from repsurgery.errors import DataError, MissingExtraError, ParameterError
from repsurgery.scorers import Scored, load_scorer, score_texts
from tests.scorers.stand_ins import Length

LATE = RuntimeError("a device answered late")


@dataclass(frozen=True)
class Failing(Length):
    """Raise ``error`` on any batch that holds a text with "bad" in it."""

    error: BaseException = LATE

    def __call__(self, texts):
        if any("bad" in text for text in texts):
            raise self.error
        return super().__call__(texts)


@dataclass(frozen=True)
class Answering(Length):
    answer: tuple = ()

    def __call__(self, texts):
        return list(self.answer)


TEXTS = ["good", "bad one", "", "fine", "so bad", "x" * 50]


@pytest.mark.parametrize("batch_size", [1, 2, 4, 256])
def test_a_failing_text_scores_none_and_the_others_as_ever(batch_size):
    scored = score_texts(Failing(), TEXTS, batch_size=batch_size)
    assert scored == Scored((0.04, None, None, 0.04, None, 0.5), 2, "length: RuntimeError: a device answered late")


@pytest.mark.parametrize("batch_size", [1, 4, 256])
def test_without_failures_it_is_the_scorer(batch_size):
    assert score_texts(Length(), TEXTS, batch_size=batch_size) == Scored(tuple(Length()(TEXTS)), 0, None)
    assert score_texts(Length(), [], batch_size=batch_size) == Scored((), 0, None)


def test_a_batch_too_large_for_memory_is_scored_text_by_text():
    class Small(Length):
        def __call__(self, texts):
            if len(texts) > 1:
                raise MemoryError
            return super().__call__(texts)

    assert score_texts(Small(), ["a", "bb"]) == Scored((0.01, 0.02), 0, None)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), MissingExtraError("pip install it")])
def test_an_interruption_and_a_missing_package_pass_through(error):
    with pytest.raises(type(error)):
        score_texts(Failing(error=error), TEXTS)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((0.1,), "length gave 1 scores for 2 texts"),
        ((0.1, 0.2, 0.3), "length gave 3 scores for 2 texts"),
        ((0.1, math.nan), "length gave the score nan for 'b'"),
        ((1.01, 0.1), "length gave the score 1.01 for 'a'"),
        ((0.1, -0.01), "length gave the score -0.01 for 'b'"),
        ((0.1, "0.2"), "length gave the score '0.2' for 'b'"),
    ],
)
def test_an_answer_that_is_no_score_names_the_scorer(answer, message):
    with pytest.raises(DataError, match=message):
        score_texts(Answering(answer=answer), ["a", "b"])


def test_numbers_of_numpy_are_numbers():
    scored = score_texts(Answering(answer=(np.float32(0.25), 1)), ["a", "b"])
    assert scored.scores == (0.25, 1.0)
    assert all(type(score) is float for score in scored.scores)


def test_what_is_no_list_of_texts_is_refused_before_anything_is_scored():
    with pytest.raises(DataError, match=r"Pass \[text\]"):
        score_texts(Length(), "text")
    with pytest.raises(DataError, match="a NoneType at position 1"):
        score_texts(Length(), ["a", None])
    for size in (0, True, 2.5):
        with pytest.raises(ParameterError, match="batch_size"):
            score_texts(Length(), ["a"], batch_size=size)


@pytest.mark.parametrize("name", ["", "perspective", "hf:", "linear:x", "calibrated", ":x"])
def test_an_unknown_name_lists_the_names(name):
    with pytest.raises(
        ParameterError, match=r"Choose one of bilstm, calibrated:<file>, detoxify, .*hf:<folder or hub id>, linear"
    ):
        load_scorer(name)


@pytest.mark.parametrize(("name", "package"), [("linear", "profanity_check"), ("bilstm", "h5py")])
def test_a_known_name_is_that_scorer(name, package):
    pytest.importorskip(package, reason=f"this scorer needs {package}")
    thanks, insult = load_scorer(name)(["Thank you kindly.", "You stupid idiot."])
    assert thanks < 0.1 < 0.9 < insult
