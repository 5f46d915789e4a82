import dataclasses
import sys
from importlib import metadata

import pytest

from repsurgery.errors import DataError, MissingExtraError
from repsurgery.scorers import LinearScorer, ToxicityScorer, linear

try:
    metadata.distribution("alt-profanity-check")
except metadata.PackageNotFoundError:
    pytest.skip("alt-profanity-check is not installed (extra repsurgery[scorers])", allow_module_level=True)


def test_it_is_a_scorer_with_name_version_and_digest():
    scorer = LinearScorer()
    assert isinstance(scorer, ToxicityScorer)
    assert (scorer.name, scorer.version) == ("alt-profanity-check", "1.9.1")
    assert scorer.digest == "0a1dd3025fdfaf348db8d9c7e05d97e51befc87381346d197f21df82ae90c8ac"
    with pytest.raises(dataclasses.FrozenInstanceError):
        scorer.version = "2"


def test_an_insult_scores_above_thanks():
    thanks, insult = LinearScorer()(["Thank you kindly.", "You stupid idiot."])
    assert 0 <= thanks < 0.1 < 0.9 < insult <= 1


def test_texts_keep_their_places_and_empty_ones_score_none():
    scorer = LinearScorer()
    texts = ["You idiot.", "", "Good morning.", " \n"]
    alone = [scorer([text])[0] for text in texts]
    assert scorer(texts) == alone
    assert [score is None for score in alone] == [False, True, False, True]
    assert scorer([]) == []
    assert scorer(["", " "]) == [None, None]


def test_a_lone_text_or_a_number_is_refused():
    with pytest.raises(DataError, match=r"Pass \[text\]"):
        LinearScorer()("one text")
    with pytest.raises(DataError, match="a NoneType at position 1"):
        LinearScorer()(["a", None])


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    linear._identity.cache_clear()
    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(MissingExtraError, match=r"pip install 'repsurgery\[scorers\]'"):
        LinearScorer()
    monkeypatch.undo()
    scorer = LinearScorer()
    monkeypatch.setitem(sys.modules, "profanity_check", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'repsurgery\[scorers\]'"):
        scorer(["text"])
