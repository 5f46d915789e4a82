"""`load_dialect`: tweets by sentiment and dialect (Blodgett et al., 2016, as in Elazar and Goldberg, 2018)."""

import os
from itertools import islice
from pathlib import Path

from repsurgery.datasets.folder import data_folder, require_file
from repsurgery.datasets.records import ConceptTexts
from repsurgery.errors import DataError, ParameterError

__all__ = ["load_dialect", "read_lines"]

_CELLS = {
    "neg_neg": ("negative", "SAE"),
    "neg_pos": ("negative", "AAE"),
    "pos_neg": ("positive", "SAE"),
    "pos_pos": ("positive", "AAE"),
}


def load_dialect(folder: str | os.PathLike[str] | None = None, *, per_cell: int = 44_000) -> ConceptTexts:
    """Return tweets: label "negative" or "positive", concept "SAE" or "AAE".

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
        File by file. Bytes that are no UTF-8 become U+FFFD, white space around a tweet is dropped, and so are empty
        lines, which do not count.

    Raises
    ------
    DataError
        A missing or empty file.
    """
    if per_cell < 1:
        raise ParameterError(f"load_dialect got per_cell={per_cell}; it takes a positive number of tweets.")
    root = Path(folder) if folder is not None else data_folder("dialect")
    texts, labels, concepts = [], [], []
    for name, (label, concept) in _CELLS.items():
        lines = read_lines(require_file(root, name, "dialect"), per_cell)
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


def read_lines(file: Path, most: int | None = None) -> list[str]:
    """Return the first ``most`` lines that hold text, stripped; bytes that are no UTF-8 become U+FFFD."""
    with file.open(encoding="utf-8", errors="replace") as stream:
        lines = list(islice((line for raw in stream if (line := raw.strip())), most))
    if not lines:
        raise DataError(f"{file} holds no text. Fetch it again.")
    return lines
