"""Rows of a table (CSV, TSV, JSON Lines or Parquet): the requested columns as text, with their places in the file."""

import csv
import io
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from repsurgery.datasets.spreadsheets import decoded, separated_text
from repsurgery.errors import DataError, LabelError, MissingExtraError, TableWarning

__all__ = [
    "ENDINGS",
    "SPLITS",
    "Numbered",
    "Placed",
    "distinct_keys",
    "numbered_rows",
    "read_rows",
    "require_distinct",
    "require_one_type",
    "split_files",
    "split_of",
    "text_of",
]

Row = Mapping[str, Any]
Numbered = tuple[str, Row]
"""The place of a row in its file ("line 3"), and the row."""
Placed = tuple[str, tuple[str, ...]]
"""The place of a row in its file, and its requested cells."""

SPLITS = {"train": "train", "dev": "dev", "validation": "dev", "test": "test"}
"""The split of a file by its name up to the first hyphen or dot."""


def read_rows(
    file: Path, columns: tuple[str, ...], *, remedy: str, dropped: list[str] | None = None
) -> Iterator[Placed]:
    """Yield place and cells of every row: the text first, then its labels, all stripped of white space.

    Parameters
    ----------
    file : path
        See `read_table`.
    columns : tuple of str
        The column of the text, then those of its labels; no cell may be empty.
    remedy : str
        What to do if a column is missing, for the error message.
    dropped : list or None
        Rows with an empty cell are left out, and their places appended here; None raises an error instead.

    Warns
    -----
    TableWarning
        Labels that differ in surrounding white space alone became one label.
    """
    spellings: dict[tuple[str, str], set[str]] = {}
    rows = numbered_rows(file, columns, remedy=remedy)
    for column in columns[1:]:
        require_one_type(file, column, rows)
    for place, row in rows:
        written = [text_of(file, place, row, column) for column in columns]
        cells = tuple(cell.strip() for cell in written)
        if dropped is not None and not all(cells):
            dropped.append(place)
            continue
        for column, cell, label in zip(columns[1:], written[1:], cells[1:], strict=True):
            spellings.setdefault((column, label), set()).add(cell)
        if not cells[0]:
            raise DataError(f"{file}, {place}: the column '{columns[0]}' is empty. Remove the row.")
        if not all(cells):
            empty = columns[cells.index("")]
            raise LabelError(f"{file}, {place}: the column '{empty}' is empty. Label the row, or remove it.")
        yield place, cells
    merged = [f"'{label}'" for (_, label), written_as in spellings.items() if len(written_as) > 1]
    if merged:
        warnings.warn(
            f"{file}: white space around labels was removed, so that different spellings became {', '.join(merged)}.",
            TableWarning,
            stacklevel=2,
        )


def numbered_rows(file: Path, columns: tuple[str, ...], *, remedy: str) -> list[Numbered]:
    """Return place and row of every row, values unchanged.

    Rows of a Parquet file have ``columns`` alone if any are named; all other rows have all columns.
    """
    if not file.is_file():
        raise DataError(f"There is no file {file}. Pass a table of texts: {', '.join(ENDINGS)}.")
    if file.suffix.lower() not in ENDINGS:
        raise DataError(f"{file} ends in '{file.suffix}'; tables that can be read: {', '.join(ENDINGS)}.")
    rows = list(_READERS[file.suffix.lower()](file, columns, remedy))
    if not rows:
        raise DataError(f"{file} holds no rows. Write one text and its label per row.")
    return rows


def require_one_type(file: Path, column: str, rows: Iterable[Numbered]) -> None:
    """Raise a `LabelError` where a column of labels holds values of several types, or one number in two spellings.

    As text, 1 and "1" would become one label, and 1, 1.0 and true three.
    """
    first: dict[str, tuple[str, Any]] = {}
    numbers: dict[Any, tuple[str, Any]] = {}
    for place, row in rows:
        value = row.get(column)
        if value is None or value != value or value == "":
            continue
        kind = _kind(value)
        first.setdefault(kind, (place, value))
        other = next((found for name, found in first.items() if name != kind), None)
        if kind == "number":
            other = other or numbers.setdefault(value, (place, value))
            other = None if type(other[1]) is type(value) else other
        if other is not None:
            kinds = " and the ".join(
                f"{_kind(one)} {json.dumps(one)} ({where})" for where, one in (other, (place, value))
            )
            raise LabelError(
                f"{file}: the column '{column}' holds the {kinds}. Write every label in one way, for example as text."
            )


_TYPES = {str: "text", bool: "truth value", int: "number", float: "number"}


def _kind(value: Any) -> str:
    return _TYPES.get(type(value), type(value).__name__)


def split_of(file: Path) -> str | None:
    """Return the split a file is named after ("train", "dev", "test"), or None."""
    return SPLITS.get(_head(file))


def split_files(folder: Path, endings: Iterable[str]) -> list[tuple[str, Path]]:
    """Return the files of a folder that are named after splits: train, dev, test, shards in order of their names."""
    ends = tuple(endings)
    files = [file for file in sorted(folder.iterdir()) if file.suffix.lower() in ends]
    by_split = {split: [file for file in files if split_of(file) == split] for split in ("train", "dev", "test")}
    for split, shards in by_split.items():
        if len({(_head(file), file.suffix) for file in shards}) > 1:
            names = ", ".join(file.name for file in shards)
            raise DataError(f"{folder} holds the split '{split}' more than once: {names}. Keep one of them.")
    return [(split, file) for split, shards in by_split.items() for file in shards]


def _head(file: Path) -> str:
    return file.name.split(".")[0].split("-")[0].lower()


def text_of(file: Path, place: str, row: Row, column: str) -> str:
    """Return a cell as text, "" if it is missing; a number becomes its digits, and a list, dict or bytes raise."""
    value = row.get(column)
    if isinstance(value, list | dict | bytes):
        raise DataError(
            f"{file}, {place}: the column '{column}' holds a {type(value).__name__}, not a text. "
            "Write one text there, or several rows."
        )
    # NaN, which marks missing values in tables, is the only value that differs from itself
    return "" if value is None or value != value else str(value)


def require_distinct(file: Path, names: Iterable[str]) -> None:
    """Raise a `DataError` if two columns of a table have the same name; columns without a name are ignored."""
    columns = list(names)
    twice = [name for name, count in Counter(columns).items() if name and count > 1]
    if twice:
        places = " and ".join(str(i) for i, name in enumerate(columns, start=1) if name == twice[0])
        raise DataError(f"{file}, header: columns {places} are called '{twice[0]}'. Rename or remove all but one.")


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of ``pairs``, for `json.loads`; raise a `DataError` where a key occurs twice."""
    row = dict(pairs)
    if len(row) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise DataError(f"the key '{twice}' occurs more than once in an object. Rename or remove all but one.")
    return row


def _require_columns(file: Path, header: Iterable[str], needed: tuple[str, ...], remedy: str) -> None:
    names = list(header)
    require_distinct(file, names)
    missing = [f"'{name}'" for name in needed if name not in names]
    if missing:
        raise DataError(f"{file} has no column {' and '.join(missing)}; found: {', '.join(names) or 'none'}. {remedy}")


def _csv(file: Path, needed: tuple[str, ...], remedy: str) -> Iterable[Numbered]:
    text, separator = separated_text(file, needed)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    return _separated(file, needed, remedy, reader)


def _tsv(file: Path, needed: tuple[str, ...], remedy: str) -> Iterable[Numbered]:
    stream = io.StringIO(decoded(file), newline="")
    reader = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    return _separated(file, needed, remedy, reader)


def _separated(file: Path, needed: tuple[str, ...], remedy: str, reader: "csv.DictReader[str]") -> Iterable[Numbered]:
    try:
        reader.fieldnames = [name.strip() for name in reader.fieldnames or []]
        _require_columns(file, reader.fieldnames, needed, remedy)
        for row in reader:
            if None in row:
                raise DataError(f"{file}, line {reader.line_num}: more cells than columns. Quote or remove separators.")
            yield f"line {reader.line_num}", row
    except csv.Error as error:
        # the DictReader's own line number is still that of the last good row
        line = reader.reader.line_num
        raise DataError(f"{file}, line {line}: {error}. Correct the quoting.") from error


def _jsonl(file: Path, needed: tuple[str, ...], remedy: str) -> Iterable[Numbered]:
    first = True
    # split at newlines only: JSON strings may hold the other separators of splitlines
    for number, line in enumerate(decoded(file).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=distinct_keys)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError(f"{file}, line {number}: {error}. Write one JSON object per line.") from error
        except DataError as error:
            raise DataError(f"{file}, line {number}: {error}") from None
        if not isinstance(row, dict):
            raise DataError(f"{file}, line {number}: a {type(row).__name__}. Write one JSON object per line.")
        if first:
            _require_columns(file, row, needed, remedy)
            first = False
        yield f"line {number}", row


def _parquet(file: Path, needed: tuple[str, ...], remedy: str) -> Iterable[Numbered]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("Reading Parquet needs pyarrow: pip install 'repsurgery[data]'") from error
    try:
        with pyarrow.parquet.ParquetFile(file) as table:
            _require_columns(file, table.schema_arrow.names, needed, remedy)
            rows = table.read(columns=list(needed) or None).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{file} cannot be read as Parquet ({error}). Write it again.") from error
    return [(f"row {number}", row) for number, row in enumerate(rows)]


_READERS: Mapping[str, Callable[[Path, tuple[str, ...], str], Iterable[Numbered]]] = {
    ".csv": _csv,
    ".tsv": _tsv,
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".parquet": _parquet,
    ".pq": _parquet,
}

ENDINGS = tuple(_READERS)
"""The file name endings of readable tables."""
