"""Tables on the terminal, split into pieces that fit its width."""

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from repsurgery.cli.terminal import Console, escape, plain
from repsurgery.cli.terminal import Table as RichTable

if TYPE_CHECKING:
    from repsurgery.studies.common.report.tables import Table

__all__ = ["in_bytes", "show_table"]

_PADDING = 1
"""Spaces on either side of a cell."""
_INTERVAL = re.compile(r"^(\S+) (\[[^\]]*\]\S*)$")
"""A value and its interval, which may have a star."""


def _borders(padding: int) -> int:
    """Return the width of a column beyond its text: its padding and a line."""
    return 2 * padding + 1


def in_bytes(value: float) -> str:
    """Return a number of bytes with its unit, as in 538 MB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.3g} {unit}"


def show_table(table: "Table", console: Console) -> None:
    """Print ``table`` and its caption.

    Where the columns do not fit the width, intervals go below their values; columns that do not fit even so follow in
    further pieces, with their keys.
    """
    table = _printable(table)
    pieces, padding = _pieces(table, console.width, _PADDING), _PADDING
    if len(pieces) > 1:
        below = _with_intervals_below(table)
        for narrow in (_PADDING, 0):
            if len(one := _pieces(below, console.width, narrow)) == 1 and below != table:
                table, pieces, padding = below, one, narrow
                break
    for columns in pieces:
        title = escape(table.title) if columns is pieces[0] else None
        stacked = any("\n" in cell for row in table.rows for cell in row)
        rich = RichTable(title=title, title_justify="left", padding=(0, padding), show_lines=stacked)
        room = console.width - 1 - _borders(padding) * len(columns)
        widths = _fitting([_width(table, column) for column in columns], room)
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


def _with_intervals_below(table: "Table") -> "Table":
    """Return the table with a line break before the interval of each value."""
    keys = table.keys
    rows = tuple((*row[:keys], *(_INTERVAL.sub(r"\1\n\2", cell) for cell in row[keys:])) for row in table.rows)
    return replace(table, rows=rows)


def _pieces(table: "Table", width: int, padding: int) -> list[list[int]]:
    needed = [_borders(padding) + _width(table, column) for column in range(len(table.headings))]
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
    return max(len(text) for text in [*words, *(line for row in table.rows for line in row[column].split("\n"))])
