"""Tweets as words, and tweets of two corpora written alike."""

import html
import re

__all__ = ["ENTITY", "tweet_words", "written_alike"]

ENTITY = "_TWITTER-ENTITY_"
"""Stands for a name or an address; the corpus of Blodgett et al. was published with it."""

_ADDRESS = r"https?://\S+|www\.\S+|@\w+"
_DROPPED = re.compile(rf"{_ADDRESS}|{ENTITY}", re.IGNORECASE)
_ADDRESSES = re.compile(_ADDRESS, re.IGNORECASE)
_WORD = re.compile(
    r"""
      [<>]?[:;=8x][-o^']?[)(\]\[dp/\\|3*]+(?!\w)  # :) ;-) :d
    | <3+ | </3                                   # hearts
    | [#$]?\w+(?:['’/&-]\w+|[.,:]\d+)*           # words, hashtags, don't, 2:30, and/or, $5
    | \.+ | [!?]+                                 # runs of one kind
    | \S
    """,
    re.VERBOSE,
)
# the tokenised corpus has "& amp ;" where the other has "&amp;", and both escape twice at times
_ESCAPE = re.compile(r"& ?(amp|lt|gt|quot|apos) ?;", re.IGNORECASE)


def tweet_words(text: str) -> list[str]:
    """Return the lower-case words, emoticons and punctuation of a tweet, without names and addresses.

    Examples
    --------
    >>> from repsurgery.datasets.tweets import tweet_words
    >>> tweet_words("@you Don't go!! see www.here.com :)")
    ["don't", 'go', '!!', 'see', ':)']
    """
    return _WORD.findall(_DROPPED.sub(" ", text.lower()))


def written_alike(text: str) -> str:
    """Return a tweet with `ENTITY` for names and addresses, no HTML escapes, broken bytes or repeated white space.

    Examples
    --------
    >>> from repsurgery.datasets.tweets import written_alike
    >>> written_alike("@you  &quot;hi&quot; & amp ; bye http://t.co/x ")
    '_TWITTER-ENTITY_ "hi" & bye _TWITTER-ENTITY_'
    """
    while (closed := html.unescape(_ESCAPE.sub(r"&\1;", text))) != text:
        text = closed
    return " ".join(_ADDRESSES.sub(ENTITY, text.replace("\ufffd", "")).split())
