"""`read_table` and `read_study`: your own texts from CSV, TSV, JSON Lines or Parquet."""

import os
from pathlib import Path

from repsurgery.datasets.records import ConceptTexts, LabelledTexts
from repsurgery.datasets.rows import ENDINGS, read_rows, split_files
from repsurgery.errors import DataError, ParameterError

__all__ = ["read_study", "read_table"]


def read_table(path: str | os.PathLike[str], *, text: str = "text", label: str = "label") -> LabelledTexts:
    """Return the texts and labels of a table as strings, stripped of surrounding white space.

    Parameters
    ----------
    path : str or path
        Ends in .csv, .tsv, .jsonl (or .ndjson), or .parquet (or .pq); text files are UTF-8. A CSV is quoted by the
        usual rules; in a TSV quotation marks are part of the text.
    text, label : str
        Names of the two columns to read.

    Raises
    ------
    DataError
        The file does not exist, has an unknown ending or is not UTF-8; a column is missing, or a text is empty.
    LabelError
        A row has no label.
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
        Names of the columns to read. With ``label=None`` there is no task, and every label is "all".
    split : str or None
        Column with the split of each row; in a folder, file names define the splits instead.

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
    """Return tables with the splits they are named after; a single file has the split ''."""
    if not source.is_dir():
        return [("", source)]
    if split is not None:
        raise ParameterError(f"{source} is a folder: its files name the splits. Leave split= out, or pass a file.")
    files = split_files(source, ENDINGS)
    if not files:
        raise DataError(f"{source} holds no table named train, dev, validation or test ({', '.join(ENDINGS)}).")
    return files
