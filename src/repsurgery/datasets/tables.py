"""`read_table` and `read_study`: the user's own texts from CSV, TSV, JSON Lines or Parquet."""

import os
from pathlib import Path

from repsurgery.datasets.records import ConceptTexts, LabelledTexts
from repsurgery.datasets.rows import ENDINGS, read_rows, split_files
from repsurgery.errors import DataError, ParameterError

__all__ = ["read_study", "read_table"]


def read_table(path: str | os.PathLike[str], *, text: str = "text", label: str = "label") -> LabelledTexts:
    """Return the texts and labels of a table, both as strings without white space around them.

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
    rows = [cells for _, cells in read_rows(file, (text, label), remedy="Name yours with text= and label=.")]
    texts, labels = zip(*rows, strict=True)
    return LabelledTexts(texts, labels, name=file.stem, source=file.name)


def read_study(
    path: str | os.PathLike[str],
    *,
    text: str = "text",
    label: str | None = "label",
    concept: str = "concept",
    split: str | None = None,
) -> ConceptTexts:
    """Return the texts, labels and concepts of a table, or of a folder of tables named after splits.

    Parameters
    ----------
    path : str or path
        A table as in `read_table`; or a folder with tables named train, dev (or validation) and test, of which any may
        be absent. Shards such as ``train-00000-of-00002.parquet`` are joined in the order of their names.
    text, label, concept : str
        Names of the columns that are read. ``label=None``: there is no task, and every label is "all".
    split : str or None
        Column that names the split of each row; a folder names splits by its files instead.

    Raises
    ------
    DataError, LabelError
        As in `read_table`; a folder without a table named after a split, or with two of one name.
    ParameterError
        ``split`` together with a folder.
    """
    source = Path(path)
    names = {"text": text, "concept": concept, "label": label, "split": split}
    columns = {role: column for role, column in names.items() if column is not None}
    remedy = f"Name yours with {', '.join(f'{role}=' for role in columns)}."
    rows = [
        {"label": "all", "split": name} | dict(zip(columns, cells, strict=True))
        for name, file in _files(source, split)
        for _, cells in read_rows(file, tuple(columns.values()), remedy=remedy)
    ]
    texts, labels, concepts, splits = (
        tuple(row[role] for row in rows) for role in ("text", "label", "concept", "split")
    )
    return ConceptTexts(texts, labels, concepts, splits if any(splits) else (), name=source.stem, source=source.name)


def _files(source: Path, split: str | None) -> list[tuple[str, Path]]:
    """Return tables and the splits they are named after; a single file has none."""
    if not source.is_dir():
        return [("", source)]
    if split is not None:
        raise ParameterError(f"{source} is a folder: its files name the splits. Leave split= out, or pass a file.")
    files = split_files(source, ENDINGS)
    if not files:
        raise DataError(f"{source} holds no table named train, dev, validation or test ({', '.join(ENDINGS)}).")
    return files
