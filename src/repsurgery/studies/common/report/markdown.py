"""Parts of a report as Markdown text that a code host shows; text from records is never markup."""

import re
from collections.abc import Iterable

from repsurgery.studies.common.report.tables import Table

__all__ = ["bullets", "escaped", "figure", "row", "table"]


def escaped(text: str) -> str:
    """Return ``text`` on one line, without a character that Markdown or HTML would read."""
    plain = " ".join(text.split()).replace("\\", "\\\\")
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # square brackets make a link only before a parenthesis or another bracket; intervals stay legible
    return re.sub(r"\](?=[(\[:])", r"\\]", re.sub(r"([`*_|~$])", r"\\\1", plain))


def table(shown: Table, *, level: int = 2) -> str:
    """Return a table under its heading, with its caption; numbers are right-aligned."""
    rule = ["---" if i < shown.keys else "---:" for i in range(len(shown.headings))]
    lines = [row(shown.headings), "|" + "|".join(rule) + "|", *map(row, shown.rows)]
    caption = f"\n\n{escaped(shown.caption)}" if shown.caption else ""
    return f"{'#' * level} {escaped(shown.title)}\n\n" + "\n".join(lines) + caption


def row(cells: Iterable[str]) -> str:
    """Return the cells as one line of a table."""
    return "| " + " | ".join(map(escaped, cells)) + " |"


def figure(file: str, caption: str) -> str:
    """Return a picture in a file beside the text, with its caption."""
    return f"![{escaped(caption)}]({file})\n\n{escaped(caption)}"


def bullets(lines: Iterable[str]) -> str:
    """Return sentences as a list."""
    # what starts like a heading or a list would become one
    return "\n".join("- " + re.sub(r"^(\d*)([#+\-=.)])", r"\1\\\2", escaped(line)) for line in lines)
