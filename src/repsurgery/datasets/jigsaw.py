"""`load_jigsaw`: comments on Wikipedia's talk pages, toxic or not (Jigsaw, 2018)."""

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path

from repsurgery.datasets.folder import ORIGINS, fetch, file_in, present_folder
from repsurgery.datasets.records import LabelledTexts
from repsurgery.datasets.rows import numbered_rows, text_of
from repsurgery.datasets.spreadsheets import decoded
from repsurgery.errors import DataError, LabelError

__all__ = ["load_jigsaw"]

REPOSITORY = "thesofakillers/jigsaw-toxic-comment-classification-challenge"

_FILES = ("train.csv", "train.parquet", "test.csv")
_LABELS = {"0": "non-toxic", "1": "toxic"}
_COLUMNS = ("comment_text", "toxic")
_REMEDY = "Pass Kaggle's train.csv, or a CSV without header: a text and 0 or 1 in each row."

Comment = tuple[str, str, str]
"""Place, and text and label as written in the file."""


def load_jigsaw(data_dir: str | os.PathLike[str] | None = None) -> LabelledTexts:
    """Return comments with the labels "toxic" and "non-toxic", without repeated texts.

    Parameters
    ----------
    data_dir : str, path or None
        A folder with Kaggle's train.csv or a balanced test.csv, or such a file. Columns comment_text and toxic (0 or 1)
        in CSV or Parquet; or a CSV without header, with a text and 0 or 1 in each row. None means the folder
        ``$REPSURGERY_DATA/jigsaw`` or ``jigsaw_balanced_12k``, or else the hub's copy of train.csv, downloaded once.

    Returns
    -------
    LabelledTexts
        Rows in the order of the file, texts unchanged. Texts of white space alone are left out; of repeated texts the
        first is kept with its label. Kaggle's file has ten times more non-toxic texts than toxic ones.

    Raises
    ------
    DataError
        There is nothing to read, a column is missing, bytes are not UTF-8, or the quoting is wrong.
    LabelError
        A label is neither 0 nor 1; the message gives file, place and value.
    """
    file, origin = _source(data_dir)
    labels: dict[str, str] = {}
    for place, text, label in _comments(file):
        if label not in _LABELS:
            raise LabelError(f"{file}, {place}: the label '{label}' is neither 0 nor 1. Correct the row, or remove it.")
        if text.strip():
            labels.setdefault(text, _LABELS[label])
    if not labels:
        raise DataError(f"{file} holds no comments. Fetch it again: {ORIGINS['jigsaw']}.")
    return LabelledTexts(
        tuple(labels),
        tuple(labels.values()),
        name="jigsaw",
        source=f"Jigsaw 2018, {origin}",
        licence="labels CC0-1.0, texts CC-BY-SA-3.0",
    )


def _source(data_dir: str | os.PathLike[str] | None) -> tuple[Path, str]:
    if data_dir is not None:
        file = file_in(Path(data_dir), _FILES, "jigsaw")
    elif (folder := present_folder("jigsaw") or present_folder("jigsaw_balanced_12k")) is not None:
        file = file_in(folder, _FILES, "jigsaw")
    else:
        snapshot = fetch(REPOSITORY, revision="main", files=["train.csv"], folder="jigsaw")
        return snapshot / "train.csv", f"{REPOSITORY} at {snapshot.name[:7]}"
    return file, f"{file.parent.name}/{file.name}"


def _comments(file: Path) -> Iterator[Comment]:
    if file.suffix.lower() == ".csv" and file.is_file() and (rows := _without_header(file)):
        yield from rows
        return
    text, label = _COLUMNS
    for place, row in numbered_rows(file, _COLUMNS, remedy=_REMEDY):
        yield place, text_of(file, place, row, text), text_of(file, place, row, label).strip()


def _without_header(file: Path) -> list[Comment]:
    """Return the comments of a CSV without a header, or an empty list if it starts with column names."""
    reader = csv.reader(io.StringIO(decoded(file), newline=""), strict=True)
    rows: list[Comment] = []
    try:
        for cells in filter(None, reader):
            if not rows and (len(cells) != 2 or cells[1].strip() not in _LABELS):
                return []
            if len(cells) != 2:
                raise DataError(f"{file}, line {reader.line_num}: {len(cells)} cells. Write a text and its label.")
            rows.append((f"line {reader.line_num}", cells[0], cells[1].strip()))
    except csv.Error as error:
        raise DataError(f"{file}, line {reader.line_num}: {error}. Correct the quoting.") from error
    return rows
