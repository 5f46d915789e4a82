"""`read_own_prompts`: prompts from a text file, or from a column of any name in a table."""

import os
from pathlib import Path

from repsurgery.datasets.columns import find_text_column, read_columns, require_column
from repsurgery.datasets.real_toxicity_prompts import Prompts, load_real_toxicity_prompts
from repsurgery.datasets.rows import ENDINGS
from repsurgery.datasets.spreadsheets import decoded
from repsurgery.errors import DataError

__all__ = ["find_prompt_column", "read_own_prompts"]

USUAL = ("prompt", "prompts", "text")
"""Names that are taken for the column of the prompts, in this order."""


def read_own_prompts(path: str | os.PathLike[str], *, column: str = "") -> Prompts:
    """Return the prompts of a file in its order; of repeated ones the first is kept.

    Parameters
    ----------
    path : str or path
        A table (.csv, .tsv, .jsonl, .parquet), the form of `load_real_toxicity_prompts`, or a text file of any other
        name with one prompt per line. Blank lines and empty cells are skipped.
    column : str
        The column of a table; if empty, see `find_prompt_column`.
    """
    file = Path(path)
    if file.is_dir():
        return load_real_toxicity_prompts(file)
    if not file.is_file():
        raise DataError(
            f"There is no file of prompts {path}. Pass a text file with one prompt per line, or a table "
            f"({', '.join(ENDINGS)}), as in --set prompts=prompts.txt."
        )
    if file.suffix.lower() not in ENDINGS:
        cells = [line.strip() for line in decoded(file).split("\n")]
    else:
        column = find_prompt_column(file, column)
        if column == "prompt" and file.suffix.lower() not in (".csv", ".tsv"):  # may hold scores as well
            return load_real_toxicity_prompts(file)
        cells = read_columns(file)[column]
    texts = tuple(dict.fromkeys(cell for cell in cells if cell))
    if not texts:
        raise DataError(f"{path} holds no prompts. Write one prompt on each line, or in each row.")
    return Prompts(texts, name=file.stem, source=file.name)


def find_prompt_column(file: Path, column: str = "") -> str:
    """Return the column of the prompts: the named one, prompt, prompts, text, the only one, or that of the texts."""
    columns = read_columns(file)
    if column:
        return require_column(file, columns, column, option="prompt_column")
    usual = next((name for name in USUAL if name in columns), None)
    if usual is not None or len(columns) == 1:
        return usual or next(iter(columns))
    return find_text_column(file, columns, option="prompt_column")
