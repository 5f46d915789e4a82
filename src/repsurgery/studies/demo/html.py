"""Parts of a page as HTML text: no script, no font, no picture from elsewhere."""

import base64
from collections.abc import Iterable, Mapping
from html import escape
from importlib import resources

from repsurgery.studies.common.report.tables import Table

__all__ = ["bullets", "document", "figure", "grid", "pairs", "table"]

_UNTOUCHED = {"base", "untouched"}
"""Names of rows without surgery, which the page shades."""


def document(title: str, parts: Iterable[str]) -> str:
    """Return a whole page; the parts are HTML already, the title is text."""
    style = (resources.files("repsurgery.studies.common.report") / "templates" / "page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def table(shown: Table, *, heading: str = "h2") -> str:
    """Return a table under its heading, with its caption."""
    return f"<{heading}>{escape(shown.title)}</{heading}>\n{grid(shown)}{_caption(shown)}"


def grid(shown: Table) -> str:
    """Return the table alone; one whose columns all hold words breaks its lines."""
    head = "".join(_cell("th", i, cell, shown.keys) for i, cell in enumerate(shown.headings))
    rows = "".join(_row(row, shown.keys) for row in shown.rows)
    start = '<table class="pairs">' if shown.keys == len(shown.headings) else "<table>"
    return f'<div class="scroll">{start}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _row(row: tuple[str, ...], keys: int) -> str:
    start = '<tr class="base">' if _UNTOUCHED & set(row[:keys]) else "<tr>"
    return start + "".join(_cell("td", i, cell, keys) for i, cell in enumerate(row)) + "</tr>"


def _cell(tag: str, index: int, text: str, keys: int) -> str:
    start = f'<{tag} class="key">' if index < keys else f"<{tag}>"
    return f"{start}{escape(text)}</{tag}>"


def _caption(shown: Table) -> str:
    return f'\n<p class="caption">{escape(shown.caption)}</p>' if shown.caption else ""


def figure(svg: str, caption: str) -> str:
    """Return a drawing as a picture, not as markup: the identifiers of two inline drawings would collide."""
    data = base64.b64encode(svg.encode()).decode()
    text = escape(caption)
    return f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{text}"><figcaption>{text}</figcaption></figure>'


def bullets(lines: Iterable[str]) -> str:
    """Return sentences as a list."""
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def pairs(facts: Mapping[str, str]) -> str:
    """Return names and values as a table of two columns."""
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in facts.items())
    return f'<table class="pairs"><tbody>{rows}</tbody></table>'
