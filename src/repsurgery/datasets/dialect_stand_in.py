"""`load_dialect_stand_in`: a dialect study from two public corpora, where the original tweets cannot be had."""

import os
from collections import Counter
from pathlib import Path

from repsurgery.datasets.dialect import read_lines
from repsurgery.datasets.dialect_model import DialectModel
from repsurgery.datasets.folder import data_folder, require_file
from repsurgery.datasets.records import ConceptTexts
from repsurgery.datasets.tweets import tweet_words, written_alike
from repsurgery.errors import DataError, ParameterError

__all__ = ["load_dialect_stand_in"]

_MODEL = "twitteraae_dialect_model"
_FILES = {
    ("negative", "AAE"): ("twitteraae_sentiment", "aae_sad"),
    ("positive", "AAE"): ("twitteraae_sentiment", "aae_happy"),
    ("negative", "SAE"): ("sentiment140_100k", "negative.txt"),
    ("positive", "SAE"): ("sentiment140_100k", "positive.txt"),
}
_CAUTIONS = (
    "Dialect is confounded with corpus: AAE are tweets of 2013 chosen by emoji, SAE are tweets of 2009 chosen by "
    "emoticon, so whatever tells the corpora apart passes for dialect.",
    "Names, addresses, HTML escapes and broken bytes are written alike in both corpora; the spaces before punctuation "
    "in the AAE corpus are left, and give it away.",
    "SAE means that a word model puts the tweet's words with White users; sentiment and dialect come from emojis, "
    "emoticons and that model, not from people.",
)


def load_dialect_stand_in(data: str | os.PathLike[str] | None = None, *, threshold: float = 0.5) -> ConceptTexts:
    """Return tweets: label "negative" or "positive", concept "AAE" (TwitterAAE) or "SAE" (Sentiment140).

    Parameters
    ----------
    data : str, path or None
        Folder that holds the folders twitteraae_sentiment (aae_happy, aae_sad), sentiment140_100k (positive.txt,
        negative.txt) and twitteraae_dialect_model; None: ``$REPSURGERY_DATA``.
    threshold : float
        A tweet of Sentiment140 is kept if the dialect model gives White more than this.

    Returns
    -------
    ConceptTexts
        Cell by cell in file order. Both corpora are written alike: a name or address is ``_TWITTER-ENTITY_``, HTML
        escapes are undone, bytes that are no UTF-8 are dropped, white space is one space. After that, tweets without
        any word are dropped, a tweet that occurs twice in a cell counts once, and one that occurs in two cells is
        dropped from both.

    Raises
    ------
    DataError
        A missing file; no tweet above the threshold.
    """
    if not 0 <= threshold < 1:
        raise ParameterError(f"load_dialect_stand_in got threshold={threshold}; it takes a number from 0 to below 1.")
    cells = {cell: _tweets(_folder(data, name) / file, name) for cell, (name, file) in _FILES.items()}
    often = Counter(text for tweets in cells.values() for text in tweets)
    model = DialectModel.load(_folder(data, _MODEL))
    rows = []
    for (label, concept), tweets in cells.items():
        kept = [text for text in tweets if often[text] == 1]
        if concept == "SAE":
            white = model.posteriors(kept)[:, model.groups.index("White")]
            kept = [text for text, share in zip(kept, white, strict=True) if share > threshold]
        if not kept:
            raise DataError(f"No {label} tweet is left for {concept} at threshold {threshold}. Lower the threshold.")
        rows += [(text, label, concept) for text in kept]
    texts, labels, concepts = zip(*rows, strict=True)
    return ConceptTexts(
        texts,
        labels,
        concepts,
        name="dialect_stand_in",
        source=f"TwitterAAE (Blodgett et al. 2016) and Sentiment140 (Go et al. 2009), White > {threshold}",
        licence="research use",
        cautions=_CAUTIONS,
    )


def _folder(data: str | os.PathLike[str] | None, name: str) -> Path:
    return Path(data) / name if data is not None else data_folder(name)


def _tweets(path: Path, dataset: str) -> list[str]:
    lines = read_lines(require_file(path.parent, path.name, dataset))
    return list(dict.fromkeys(text for line in lines if tweet_words(text := written_alike(line))))
