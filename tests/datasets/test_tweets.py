import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsurgery.datasets.dialect_model import ENTITY, tweet_words, written_alike


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I'M so DON’T", ["i'm", "so", "don’t"]),
        ("what?!... ok,then", ["what", "?!", "...", "ok", ",", "then"]),
        ("at 2:30 for $5 #lol w/ and/or", ["at", "2:30", "for", "$5", "#lol", "w", "/", "and/or"]),
        (":) ;-) :D <3 <33", [":)", ";-)", ":d", "<3", "<33"]),
        (f"@me: {ENTITY} see http://t.co/a1 WWW.x.com", [":", "see"]),
        ("😂😂", ["😂", "😂"]),
        ("  ", []),
    ],
)
def test_words_emoticons_and_marks_are_told_apart(text, words):
    assert tweet_words(text) == words


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("@me hi @you", f"{ENTITY} hi {ENTITY}"),
        (f"{ENTITY} hi", f"{ENTITY} hi"),
        ("a &amp;amp; b & amp ; amp ; c", "a & b & c"),
        ("x &lt;3 & gt ; y", "x <3 > y"),
        ("bro\ufffd  ken\t", "bro ken"),
    ],
)
def test_both_corpora_are_written_alike(text, written):
    assert written_alike(text) == written


@given(st.text(alphabet="ab &;amplt@_ \ufffd#39", max_size=30))
def test_writing_twice_changes_nothing(text):
    assert written_alike(written_alike(text)) == written_alike(text)
