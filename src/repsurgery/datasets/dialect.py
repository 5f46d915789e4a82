"""Tweets by sentiment and dialect: `load_dialect`, and `load_dialect_stand_in` from two public corpora."""

import os
from collections import Counter
from itertools import islice
from pathlib import Path

from repsurgery.datasets.dialect_model import DialectModel, tweet_words, written_alike
from repsurgery.datasets.folder import data_folder, require_file
from repsurgery.datasets.records import ConceptTexts
from repsurgery.errors import DataError, ParameterError

__all__ = ["load_dialect", "load_dialect_stand_in"]

_CELLS = {
    "neg_neg": ("negative", "SAE"),
    "neg_pos": ("negative", "AAE"),
    "pos_neg": ("positive", "SAE"),
    "pos_pos": ("positive", "AAE"),
}
_MODEL = "twitteraae_dialect_model"
_STAND_IN_CELLS = {
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


def load_dialect(folder: str | os.PathLike[str] | None = None, *, per_cell: int = 44_000) -> ConceptTexts:
    """Return tweets of Blodgett et al. (2016): label "negative" or "positive", concept "SAE" or "AAE".

    Parameters
    ----------
    folder : str, path or None
        Holds the files neg_neg, neg_pos, pos_neg and pos_pos, {sentiment}_{dialect}, one tweet per line;
        None: ``$REPSURGERY_DATA/dialect``.
    per_cell : int
        The first ``per_cell`` tweets of each file are kept, or all where there are fewer.

    Returns
    -------
    ConceptTexts
        Tweets file by file. Bytes that are not UTF-8 become U+FFFD; white space around a tweet and empty lines are
        dropped.

    Raises
    ------
    DataError
        A file is missing or empty.
    """
    if per_cell < 1:
        raise ParameterError(f"load_dialect got per_cell={per_cell}; it takes a positive number of tweets.")
    root = Path(folder) if folder is not None else data_folder("dialect")
    texts, labels, concepts = [], [], []
    for name, (label, concept) in _CELLS.items():
        lines = _lines(require_file(root, name, "dialect"), per_cell)
        texts += lines
        labels += [label] * len(lines)
        concepts += [concept] * len(lines)
    return ConceptTexts(
        tuple(texts),
        tuple(labels),
        tuple(concepts),
        name="twitteraae",
        source="Blodgett et al. 2016, files of Elazar and Goldberg 2018",
        licence="research use",
        cautions=("Sentiment comes from emojis and dialect from a word model, not from people.",),
    )


def _lines(file: Path, most: int | None = None) -> list[str]:
    """Return the first ``most`` non-empty lines, stripped; bytes that are not UTF-8 become U+FFFD."""
    with file.open(encoding="utf-8", errors="replace") as stream:
        lines = list(islice((line for raw in stream if (line := raw.strip())), most))
    if not lines:
        raise DataError(f"{file} holds no text. Fetch it again.")
    return lines


def load_dialect_stand_in(data: str | os.PathLike[str] | None = None, *, threshold: float = 0.5) -> ConceptTexts:
    """Return tweets: label "negative" or "positive", concept "AAE" (TwitterAAE) or "SAE" (Sentiment140).

    Parameters
    ----------
    data : str, path or None
        Folder that holds the folders twitteraae_sentiment (aae_happy, aae_sad), sentiment140_100k (positive.txt,
        negative.txt) and twitteraae_dialect_model; None: ``$REPSURGERY_DATA``.
    threshold : float
        A tweet of Sentiment140 is kept if the dialect model assigns White a share above this.

    Returns
    -------
    ConceptTexts
        Tweets cell by cell in file order. Both corpora are normalised alike: names and addresses become
        ``_TWITTER-ENTITY_``, HTML escapes are decoded, bytes that are not UTF-8 are dropped, and runs of white space
        become one space. Then tweets without any word are dropped, repeated tweets of a cell are kept once, and tweets
        that occur in two cells are dropped from both.

    Raises
    ------
    DataError
        A file is missing, or no tweet exceeds the threshold.
    """
    if not 0 <= threshold < 1:
        raise ParameterError(f"load_dialect_stand_in got threshold={threshold}; it takes a number from 0 to below 1.")
    cells = {cell: _tweets(_folder(data, name) / file, name) for cell, (name, file) in _STAND_IN_CELLS.items()}
    cells_with = Counter(text for tweets in cells.values() for text in tweets)
    model = DialectModel.load(_folder(data, _MODEL))
    rows = []
    for (label, concept), tweets in cells.items():
        chosen = [text for text in tweets if cells_with[text] == 1]
        if concept == "SAE":
            white = model.posteriors(chosen)[:, model.groups.index("White")]
            chosen = [text for text, share in zip(chosen, white, strict=True) if share > threshold]
        if not chosen:
            raise DataError(f"No {label} tweet is left for {concept} at threshold {threshold}. Lower the threshold.")
        rows += [(text, label, concept) for text in chosen]
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
    lines = _lines(require_file(path.parent, path.name, dataset))
    return list(dict.fromkeys(text for line in lines if tweet_words(text := written_alike(line))))
