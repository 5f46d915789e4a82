"""Find the columns of a table that hold texts and labels, where they do not have the usual names."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from repsurgery.datasets.rows import numbered_rows
from repsurgery.errors import DataError

__all__ = ["find_label_column", "find_text_column", "read_columns", "require_column"]

MOST_LABELS = 20
"""A column with more different values is not taken for labels."""

Columns = Mapping[str, Sequence[str]]
"""The cells of each column as text, stripped; "" if missing."""


def read_columns(file: Path) -> dict[str, list[str]]:
    """Return every column of a table in order, as text."""
    rows = [row for _, row in numbered_rows(file, (), remedy="")]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [_as_text(row.get(name)) for row in rows] for name in names}


def _as_text(value: Any) -> str:
    # NaN, which marks missing values, is the only value that differs from itself
    return "" if value is None or value != value else str(value).strip()


def require_column(file: Path, columns: Columns, name: str, *, option: str) -> str:
    """Return ``name`` if it is a column; otherwise raise an error that lists the columns and names the option."""
    if name in columns:
        return name
    raise DataError(
        f"{file} has no column '{name}'; its columns are {', '.join(columns)}. Name one of them with --set {option}=."
    )


def find_text_column(file: Path, columns: Columns, *, option: str = "text") -> str:
    """Return the column with the longest cells, which must contain several words on average.

    Guarantees
    ----------
    The order of the columns does not matter (test_the_order_of_columns_does_not_matter).
    """
    lengths = {name: sum(map(len, cells)) / max(1, len(cells)) for name, cells in columns.items()}
    words = {name: sum(len(cell.split()) for cell in cells) / max(1, len(cells)) for name, cells in columns.items()}
    found = [name for name in sorted(columns, key=lambda name: (-lengths[name], name)) if words[name] >= 1.5]
    if not found:
        raise DataError(
            f"No column of {file} looks like texts; its columns are {', '.join(columns)}. Name the one with the texts "
            f"with --set {option}=."
        )
    return found[0]


def find_label_column(file: Path, columns: Columns, *, text: str) -> str:
    """Return the only column beside the texts with few different values; an error lists the columns if several are.

    Few: from 2 to 20 values, and at least three rows for each on average.
    """
    found = []
    for name, cells in columns.items():
        values = {cell for cell in cells if cell}
        if name != text and 2 <= len(values) <= min(MOST_LABELS, len(cells) / 3):
            found.append(name)
    if len(found) == 1:
        return found[0]
    which = f"{' and '.join(found)} could hold them" if found else "none of them has few different values"
    raise DataError(
        f"{file} has no column 'label'; its columns are {', '.join(columns)}, and {which}. Name the column of the "
        f"labels{f', as in --set label={found[0]}' if found else ' with --set label='}."
    )
