"""`read_table`: labelled texts from CSV, TSV, JSON Lines or Parquet."""

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from repsurgery.datasets.records import LabelledTexts
from repsurgery.errors import DataError, LabelError, MissingExtraError

__all__ = ["read_table"]

Row = Mapping[str, Any]
Numbered = tuple[str, Row]
"""A row and where it stands in its file ("line 3")."""


def read_table(path: str | os.PathLike[str], *, text: str = "text", label: str = "label") -> LabelledTexts:
    """Return the texts and labels of a table; white space around either is dropped.

    Parameters
    ----------
    path : str or path
        Ends in .csv, .tsv, .jsonl (or .ndjson), or .parquet (or .pq); text files are UTF-8. A CSV quotes by the usual
        rules, a TSV not at all: a quotation mark in it is part of the text.
    text, label : str
        Names of the two columns that are read.

    Raises
    ------
    DataError
        No such file, an unknown ending, bytes that are no UTF-8, a missing column, an empty text.
    LabelError
        A row without label.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"There is no file {file}. Pass a table of texts: {', '.join(_READERS)}.")
    if file.suffix.lower() not in _READERS:
        raise DataError(f"{file} ends in '{file.suffix}'; tables that can be read: {', '.join(_READERS)}.")
    rows = list(_READERS[file.suffix.lower()](file, (text, label)))
    if not rows:
        raise DataError(f"{file} holds no rows. Write one text and its label per row.")
    texts, labels = [], []
    for place, row in rows:
        texts.append(_cell(row, text))
        labels.append(_cell(row, label))
        if not texts[-1]:
            raise DataError(f"{file}, {place}: the column '{text}' is empty. Remove the row.")
        if not labels[-1]:
            raise LabelError(f"{file}, {place}: the column '{label}' is empty. Label the row, or remove it.")
    return LabelledTexts(tuple(texts), tuple(labels), name=file.stem, source=file.name)


def _cell(row: Row, column: str) -> str:
    value = row.get(column)
    # NaN is the only value that differs from itself; tables use it for "nothing here"
    return "" if value is None or value != value else str(value).strip()


def _require_columns(file: Path, found: Iterable[str], needed: tuple[str, str]) -> None:
    names = list(found)
    missing = [f"'{name}'" for name in needed if name not in names]
    if missing:
        raise DataError(
            f"{file} has no column {' and '.join(missing)}; found: {', '.join(names) or 'none'}. "
            "Name yours with text= and label=."
        )


def _decoded(file: Path) -> str:
    data = file.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DataError(f"{file}, line {line}: byte {error.start} is no UTF-8. Save the file as UTF-8.") from error


def _csv(file: Path, needed: tuple[str, str]) -> Iterable[Numbered]:
    return _separated(file, needed, csv.DictReader(io.StringIO(_decoded(file), newline=""), strict=True))


def _tsv(file: Path, needed: tuple[str, str]) -> Iterable[Numbered]:
    stream = io.StringIO(_decoded(file), newline="")
    return _separated(file, needed, csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True))


def _separated(file: Path, needed: tuple[str, str], reader: "csv.DictReader[str]") -> Iterable[Numbered]:
    try:
        _require_columns(file, reader.fieldnames or [], needed)
        for row in reader:
            if None in row:
                raise DataError(f"{file}, line {reader.line_num}: more cells than columns. Quote or remove separators.")
            yield f"line {reader.line_num}", row
    except csv.Error as error:
        raise DataError(f"{file}, line {reader.line_num}: {error}. Correct the quoting.") from error


def _jsonl(file: Path, needed: tuple[str, str]) -> Iterable[Numbered]:
    # split at newlines only: JSON strings may hold the other separators that splitlines knows
    for number, line in enumerate(_decoded(file).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{file}, line {number}: {error}. Write one JSON object per line.") from error
        if not isinstance(row, dict):
            raise DataError(f"{file}, line {number}: a {type(row).__name__}. Write one JSON object per line.")
        _require_columns(file, row, needed)
        yield f"line {number}", row


def _parquet(file: Path, needed: tuple[str, str]) -> Iterable[Numbered]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("Reading Parquet needs pyarrow: pip install 'repsurgery[data]'") from error
    try:
        with pyarrow.parquet.ParquetFile(file) as table:
            _require_columns(file, table.schema_arrow.names, needed)
            rows = table.read(columns=list(needed)).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{file} cannot be read as Parquet ({error}). Write it again.") from error
    return [(f"row {number}", row) for number, row in enumerate(rows)]


_READERS: Mapping[str, Callable[[Path, tuple[str, str]], Iterable[Numbered]]] = {
    ".csv": _csv,
    ".tsv": _tsv,
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".parquet": _parquet,
    ".pq": _parquet,
}
