"""`read_table` and `read_study`: your own texts from CSV, TSV, JSON Lines or Parquet."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from repsurgery.datasets.records import ConceptTexts, LabelledTexts
from repsurgery.datasets.rows import ENDINGS, read_rows, split_files
from repsurgery.errors import DataError, ParameterError

__all__ = ["read_study", "read_table"]

Missing = Literal["raise", "drop"]


def read_table(
    path: str | os.PathLike[str], *, text: str = "text", label: str = "label", missing: Missing = "raise"
) -> LabelledTexts:
    """Return the texts and labels of a table as strings, stripped of surrounding white space.

    Parameters
    ----------
    path : str or path
        Ends in .csv, .tsv, .jsonl (or .ndjson), or .parquet (or .pq). Text files are UTF-8, or UTF-16 with a byte
        order mark. A CSV is quoted by the usual rules; it may also be in Windows-1252 and separated by semicolons or
        tabs, of which a `TableWarning` tells. In a TSV quotation marks are part of the text.
    text, label : str
        Names of the two columns to read.
    missing : {"raise", "drop"}
        Whether a row with an empty cell is an error, or is left out; then a caution of the result says how many were.

    Raises
    ------
    DataError
        The file does not exist, has an unknown ending or another encoding; a column is missing, or a text is empty.
    LabelError
        A row has no label.
    """
    file = Path(path)
    dropped: list[str] | None = [] if _drops(missing) else None
    remedy = "Name yours with text= and label=."
    rows = [cells for _, cells in read_rows(file, (text, label), remedy=remedy, dropped=dropped)]
    cautions = _left_out(file, (text, label), len(rows), dropped or [])
    texts, labels = zip(*rows, strict=True)
    return LabelledTexts(texts, labels, name=file.stem, source=file.name, cautions=cautions)


def read_study(
    path: str | os.PathLike[str],
    *,
    text: str = "text",
    label: str | None = "label",
    concept: str = "concept",
    split: str | None = None,
    missing: Missing = "raise",
) -> ConceptTexts:
    """Return the texts, labels and concepts of a table, or of a folder of tables named after splits.

    Parameters
    ----------
    path : str or path
        A table as in `read_table`; or a folder with tables named train, dev (or validation) and test, of which any may
        be absent. Shards such as ``train-00000-of-00002.parquet`` are joined in the order of their names.
    text, label, concept : str
        Names of the columns to read. With ``label=None`` there is no task, and every label is "all".
    split : str or None
        Column with the split of each row; in a folder, file names define the splits instead.
    missing : {"raise", "drop"}
        As in `read_table`.

    Raises
    ------
    DataError, LabelError
        As in `read_table`; also if a folder has no table named after a split, or two with the same name.
    ParameterError
        ``split`` together with a folder.
    """
    source = Path(path)
    names = {"text": text, "concept": concept, "label": label, "split": split}
    columns = {role: column for role, column in names.items() if column is not None}
    remedy = f"Name yours with {', '.join(f'{role}=' for role in columns)}."
    dropped: list[str] | None = [] if _drops(missing) else None
    rows = [
        {"label": "all", "split": name} | dict(zip(columns, cells, strict=True))
        for name, file in _files(source, split)
        for _, cells in read_rows(file, tuple(columns.values()), remedy=remedy, dropped=dropped)
    ]
    cautions = _left_out(source, tuple(columns.values()), len(rows), dropped or [])
    texts, labels, concepts, splits = (
        tuple(row[role] for row in rows) for role in ("text", "label", "concept", "split")
    )
    return ConceptTexts(
        texts,
        labels,
        concepts,
        splits if any(splits) else (),
        name=source.stem,
        source=source.name,
        cautions=cautions,
    )


def _drops(missing: Missing) -> bool:
    if missing not in ("raise", "drop"):
        raise ParameterError(f"missing is {missing!r}; it must be 'raise' or 'drop'.")
    return missing == "drop"


def _left_out(source: Path, columns: Sequence[str], kept: int, dropped: Sequence[str]) -> tuple[str, ...]:
    """Return a sentence on rows that were left out; raise if none is left."""
    names = ", ".join(columns)
    if not kept:
        raise DataError(f"None of the {len(dropped)} rows of {source} has all of {names}. Fill them in.")
    if not dropped:
        return ()
    first = ", ".join(dropped[:3]) + (", …" if len(dropped) > 3 else "")
    verb, were = ("lacks", "was") if len(dropped) == 1 else ("lack", "were")
    return (f"{len(dropped)} of {kept + len(dropped)} rows {verb} one of {names} and {were} left out ({first}).",)


def _files(source: Path, split: str | None) -> list[tuple[str, Path]]:
    """Return tables with the splits they are named after; a single file has the split ''."""
    if not source.is_dir():
        return [("", source)]
    if split is not None:
        raise ParameterError(f"{source} is a folder: its files name the splits. Leave split= out, or pass a file.")
    files = split_files(source, ENDINGS)
    if not files:
        raise DataError(f"{source} holds no table named train, dev, validation or test ({', '.join(ENDINGS)}).")
    return files
