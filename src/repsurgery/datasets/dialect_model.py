"""`DialectModel`: the demographic word model of Blodgett, Green and O'Connor (2016), and the words of tweets."""

import html
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Matrix, Vector, freeze
from repsurgery.datasets.folder import data_folder, require_file
from repsurgery.errors import DataError

__all__ = ["ENTITY", "DialectModel", "tweet_words", "written_alike"]

ALPHA = 1.0
PASSES = 5
KNOWN_SHARE = 0.2
"""Tweets with a smaller share of known words than this have no posterior."""
BATCH = 4096
_NAME = "twitteraae_dialect_model"

ENTITY = "_TWITTER-ENTITY_"
"""The placeholder for names and addresses in the published corpus of Blodgett et al."""

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
# the tokenised corpus has "& amp ;" where the other has "&amp;", and both sometimes escape twice
_ESCAPE = re.compile(r"& ?(amp|lt|gt|quot|apos) ?;", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class DialectModel:
    """Infer which of four demographic groups the words of a tweet are associated with.

    The model assumes that each word of a tweet comes from one of the groups. The group of a word is inferred from the
    word's rates and from the other words of the tweet (collapsed variational Bayes of order zero, prior 1 per group,
    the initial pass and four sweeps over the words in order). The posterior is the mean over words. It describes the
    words, not the person who wrote them.

    Parameters
    ----------
    words : mapping of str to int
        The row of each lower-case word.
    rates : (v, 4) array
        How often a group uses a word, up to a factor per word; rows sum to 1.

    Guarantees
    ----------
    * Posteriors of a batch equal those of the loop over single words (test_the_batch_is_the_loop_over_words).
    * A posterior is a distribution over the four groups (test_a_posterior_is_a_distribution_or_nothing).
    """

    words: Mapping[str, int]
    rates: Matrix

    groups = ("African-American", "Hispanic", "Other", "White")

    @classmethod
    def load(cls, folder: str | os.PathLike[str] | None = None) -> "DialectModel":
        """Return the model of model_vocab.txt (count, tab, word) and model_count_table.txt (four counts per word).

        ``folder=None`` is ``$REPSURGERY_DATA/twitteraae_dialect_model``.
        """
        root = Path(folder) if folder is not None else data_folder(_NAME)
        vocabulary = require_file(root, "model_vocab.txt", _NAME)
        counts = _counts(require_file(root, "model_count_table.txt", _NAME))
        # split at newlines alone: the vocabulary contains rarer separators as words
        lines = vocabulary.read_text(encoding="utf-8").rstrip("\n").split("\n")
        if len(lines) != len(counts):
            raise DataError(
                f"{vocabulary} has {len(lines)} words, the table of counts {len(counts)} rows. Fetch both files again."
            )
        rates = (counts + 1) / counts.sum(axis=0)
        words = {line.split("\t")[-1].strip(): row for row, line in enumerate(lines)}
        return cls(words, freeze(rates / rates.sum(axis=1, keepdims=True)))

    def posterior(self, text: str) -> Vector | None:
        """Return the (4,) shares of the groups, or None where fewer than a fifth of the words are known."""
        shares = self.posteriors([text])[0]
        return None if np.isnan(shares[0]) else shares

    def posteriors(self, texts: Iterable[str]) -> Matrix:
        """Return the (n, 4) shares of the groups in n texts, NaN where fewer than a fifth of the words are known."""
        known = [self._known(text) for text in texts]
        lengths = np.array([len(rows) for rows in known], dtype=np.intp)
        out = np.full((len(known), len(self.groups)), np.nan)
        longest_first = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
        for start in range(0, len(longest_first), BATCH):
            batch = longest_first[start : start + BATCH]
            out[batch] = self._infer([known[i] for i in batch], lengths[batch])
        return out

    def _known(self, text: str) -> list[int]:
        tokens = tweet_words(text)
        rows = [self.words[token] for token in tokens if token in self.words]
        return rows if len(rows) >= KNOWN_SHARE * len(tokens) else []

    def _infer(self, documents: list[list[int]], lengths: NDArray[np.intp]) -> Matrix:
        """Update all documents (longest first) at once, word by word."""
        rates = np.zeros((lengths[0], len(documents), len(self.groups)))
        for j, rows in enumerate(documents):
            rates[: len(rows), j] = self.rates[rows]
        Q = rates.copy()
        total = Q.sum(axis=0)
        having = [int(np.count_nonzero(lengths > i)) for i in range(len(Q))]
        for _ in range(1, PASSES):
            for i, n in enumerate(having):
                others = total[:n] - Q[i, :n]
                q = rates[i, :n] * (others + ALPHA)
                q /= q.sum(axis=1, keepdims=True)
                Q[i, :n] = q
                total[:n] = others + q
        return np.asarray(total / total.sum(axis=1, keepdims=True))


def _counts(file: Path) -> Matrix:
    try:
        counts = np.loadtxt(file, ndmin=2)
    except ValueError as error:
        raise DataError(f"{file} is not a table of counts ({error}). Fetch it again.") from error
    if counts.shape[1:] != (4,) or not np.isfinite(counts).all() or (counts < 0).any() or not counts.any(axis=0).all():
        raise DataError(f"{file} needs four columns of counts >= 0, none of zeros; got {counts.shape}. Fetch it again.")
    return counts


def tweet_words(text: str) -> list[str]:
    """Return the lower-case words, emoticons and punctuation of a tweet, without names and addresses.

    Examples
    --------
    >>> from repsurgery.datasets.dialect_model import tweet_words
    >>> tweet_words("@you Don't go!! see www.here.com :)")
    ["don't", 'go', '!!', 'see', ':)']
    """
    return _WORD.findall(_DROPPED.sub(" ", text.lower()))


def written_alike(text: str) -> str:
    """Return a tweet with `ENTITY` for names and addresses, no HTML escapes, broken bytes or repeated white space.

    Examples
    --------
    >>> from repsurgery.datasets.dialect_model import written_alike
    >>> written_alike("@you  &quot;hi&quot; & amp ; bye http://t.co/x ")
    '_TWITTER-ENTITY_ "hi" & bye _TWITTER-ENTITY_'
    """
    while (closed := html.unescape(_ESCAPE.sub(r"&\1;", text))) != text:
        text = closed
    return " ".join(_ADDRESSES.sub(ENTITY, text.replace("\ufffd", "")).split())
