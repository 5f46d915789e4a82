"""Plain tables on the terminal."""

from repsurgery.cli.needs import Console, escape
from repsurgery.cli.needs import Table as RichTable
from repsurgery.report import Table

__all__ = ["show_table"]


def show_table(table: Table, console: Console) -> None:
    """Print ``table`` with its caption below."""
    rich = RichTable(title=table.title, title_justify="left", caption=table.caption or None, caption_justify="left")
    for i, heading in enumerate(table.headings):
        rich.add_column(heading, justify="right" if i else "left")
    for row in table.rows:
        rich.add_row(*(escape(cell) for cell in row))
    console.print(rich)
