"""Tables on the terminal, split into pieces that fit its width."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from repsurgery.cli.terminal import Console, escape, plain
from repsurgery.cli.terminal import Table as RichTable

if TYPE_CHECKING:
    from repsurgery.studies.common.report.tables import Table

__all__ = ["in_bytes", "show_table"]

_BORDERS = 3
"""The width of a column beyond its text: two spaces and a line."""


def in_bytes(value: float) -> str:
    """Return a number of bytes with its unit, as in 538 MB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.3g} {unit}"


def show_table(table: "Table", console: Console) -> None:
    """Print ``table`` and its caption; columns that do not fit the width follow in further pieces, with their keys."""
    table = _printable(table)
    pieces = _pieces(table, console.width)
    for columns in pieces:
        title = escape(table.title) if columns is pieces[0] else None
        rich = RichTable(title=title, title_justify="left")
        widths = _fitting([_width(table, column) for column in columns], console.width - 1 - _BORDERS * len(columns))
        for column, width in zip(columns, widths, strict=True):
            justify: Literal["left", "right"] = "left" if column < table.keys else "right"
            # headings may be wrapped; cells only if the keys leave no room
            rich.add_column(escape(table.headings[column]), justify=justify, width=width)
        for row in table.rows:
            rich.add_row(*(escape(row[column]) for column in columns))
        console.print(rich)
    if table.caption:
        console.print(escape(table.caption), style="dim italic", highlight=False)


def _printable(table: "Table") -> "Table":
    # before widths are measured, because an escaped control character is longer
    rows = tuple(tuple(map(plain, row)) for row in table.rows)
    return replace(table, headings=tuple(map(plain, table.headings)), rows=rows)


def _pieces(table: "Table", width: int) -> list[list[int]]:
    needed = [_BORDERS + _width(table, column) for column in range(len(table.headings))]
    keys = list(range(table.keys))
    pieces = [list(keys)]
    for column in range(table.keys, len(needed)):
        whole = 1 + sum(needed[c] for c in pieces[-1]) + needed[column]
        if whole > width and len(pieces[-1]) > len(keys):
            pieces.append(list(keys))
        pieces[-1].append(column)
    return pieces


def _fitting(widths: list[int], room: int) -> list[int]:
    """Return ``widths`` with the largest cut to a common width, at least 1, so that together they fit ``room``."""
    most = max(widths, default=1)
    while most > 1 and sum(min(width, most) for width in widths) > room:
        most -= 1
    return [min(width, most) for width in widths]


def _width(table: "Table", column: int) -> int:
    words = table.headings[column].split()
    return max(len(text) for text in [*words, *(row[column] for row in table.rows)])
