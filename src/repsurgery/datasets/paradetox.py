"""`load_paradetox`: toxic sentences and neutral rewrites of them (Logacheva et al., 2022)."""

import csv
import io
import os
from pathlib import Path

from repsurgery.datasets.folder import ORIGINS, fetch, file_in, present_folder
from repsurgery.datasets.records import LabelledTexts
from repsurgery.datasets.rows import require_distinct
from repsurgery.datasets.spreadsheets import decoded
from repsurgery.errors import DataError

__all__ = ["load_paradetox", "load_paradetox_pairs"]

REPOSITORY = "s-nlp/paradetox"
REVISION = "93a90090fa1697206d72b408c05615639483af14"

_FILES = ("paradetox.tsv", "train.tsv")
# the repository's own names, and those of its copy on the hub
_HEADS = (("toxic", "neutral1", "neutral2", "neutral3"), ("en_toxic_comment", "en_neutral_comment"))


def load_paradetox(data_dir: str | os.PathLike[str] | None = None) -> LabelledTexts:
    """Return the toxic sentences, labelled "toxic", and their rewrites, labelled "non-toxic", without repeats.

    Parameters
    ----------
    data_dir : str, path or None
        See `load_paradetox_pairs`.

    Returns
    -------
    LabelledTexts
        Rows in the order of the file, every sentence before its rewrites, texts unchanged. Of repeated texts the first
        is kept with its label, so that a rewrite equal to its sentence is toxic.
    """
    file, origin = _source(data_dir)
    labels: dict[str, str] = {}
    for toxic, neutral in _pairs(file):
        labels.setdefault(toxic, "toxic")
        labels.setdefault(neutral, "non-toxic")
    return LabelledTexts(
        tuple(labels),
        tuple(labels.values()),
        name="paradetox",
        source=f"Logacheva et al. 2022, {origin}",
        licence="OpenRAIL++" if file.name == "train.tsv" else "CC0-1.0",
    )


def load_paradetox_pairs(data_dir: str | os.PathLike[str] | None = None) -> tuple[tuple[str, str], ...]:
    """Return every pair of a toxic sentence and one rewrite of it, in the order of the file, texts unchanged.

    Parameters
    ----------
    data_dir : str, path or None
        A folder with paradetox.tsv (toxic, neutral1, neutral2, neutral3) or the hub's train.tsv (en_toxic_comment,
        en_neutral_comment), or such a file. None means ``$REPSURGERY_DATA/paradetox``, or else the hub's dataset
        ``s-nlp/paradetox``, downloaded once.

    Raises
    ------
    DataError
        There is nothing to read, a column is missing, bytes are not UTF-8, or the quoting is wrong.
    """
    return tuple(_pairs(_source(data_dir)[0]))


def _source(data_dir: str | os.PathLike[str] | None) -> tuple[Path, str]:
    folder = Path(data_dir) if data_dir is not None else present_folder("paradetox")
    if folder is None:
        snapshot = fetch(REPOSITORY, revision=REVISION, files=["train.tsv"], folder="paradetox")
        return snapshot / "train.tsv", f"{REPOSITORY} at {REVISION[:7]}"
    file = file_in(folder, _FILES, "paradetox")
    return file, f"{file.parent.name}/{file.name}"


def _pairs(file: Path) -> list[tuple[str, str]]:
    if not file.is_file():
        raise DataError(f"There is no file {file}. The files of 'paradetox': {ORIGINS['paradetox']}.")
    # unlike other TSV files this one uses quotes, and some rewrites span several lines
    reader = csv.DictReader(io.StringIO(decoded(file), newline=""), delimiter="\t", strict=True)
    try:
        require_distinct(file, reader.fieldnames or [])
        toxic, *neutral = _columns(file, list(reader.fieldnames or []))
        rows = [(row[toxic] or "", row[name] or "") for row in reader for name in neutral]
    except csv.Error as error:
        raise DataError(f"{file}, line {reader.reader.line_num}: {error}. Correct the quoting.") from error
    pairs = [pair for pair in rows if all(text.strip() for text in pair)]
    if not pairs:
        raise DataError(f"{file} holds no pairs. Fetch it again: {ORIGINS['paradetox']}.")
    return pairs


def _columns(file: Path, header: list[str]) -> tuple[str, ...]:
    for head in _HEADS:
        if set(head) <= set(header):
            return head
    needed = " or ".join(", ".join(head) for head in _HEADS)
    raise DataError(f"{file} has the columns {', '.join(header) or 'none'}; it needs {needed}. Fetch it again.")
