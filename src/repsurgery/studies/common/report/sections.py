"""A study drawn up for reading, and its section of the page and of the Markdown."""

from dataclasses import dataclass
from html import escape

from repsurgery.studies.common.report import html, markdown
from repsurgery.studies.common.report.examples import examples_html, examples_markdown
from repsurgery.studies.common.report.tables import Table
from repsurgery.studies.toxicity.record import Example

__all__ = ["Drawing", "Section", "section_html", "section_markdown"]

_LONG = 24
"""Tables with more rows are folded on the page."""
_FIRST = 2
"""So many tables stand before the figures."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure as SVG text, and the file beside the Markdown that holds it."""

    file: str
    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Section:
    """One record, drawn up: what page and Markdown both show."""

    anchor: str
    title: str
    lead: str
    cautions: list[str]
    results: list[Table]
    drawings: list[Drawing]
    facts: list[Table]
    examples: tuple[Example, ...] = ()


def section_html(study: Section) -> str:
    """Return the section of the page."""
    parts = [
        f'<section id="{study.anchor}">',
        f"<h2>{escape(study.title)}</h2>",
        f'<p class="lead">{escape(study.lead)}</p>',
    ]
    if study.cautions:
        parts.append(f'<div class="cautions"><p>Read this first</p>{html.bullets(study.cautions)}</div>')
    first, rest = study.results[:_FIRST], study.results[_FIRST:]
    parts += [html.table(table, heading="h3") for table in first]
    parts += [html.figure(drawing.svg, drawing.caption) for drawing in study.drawings]
    parts += [html.folded(table) if len(table.rows) > _LONG else html.table(table, heading="h3") for table in rest]
    if study.examples:
        parts += ["<h3>Example generations</h3>", examples_html(study.examples)]
    parts += ["<h3>How it was made</h3>", *map(html.folded, study.facts), "</section>"]
    return "\n".join(parts)


def section_markdown(study: Section) -> list[str]:
    """Return the blocks of the Markdown."""
    parts = [f"## {markdown.escaped(study.title)}", markdown.escaped(study.lead)]
    if study.cautions:
        parts += ["**Read this first**", markdown.bullets(study.cautions)]
    parts += [markdown.table(table, level=3) for table in study.results[:_FIRST]]
    parts += [markdown.figure(drawing.file, drawing.caption) for drawing in study.drawings]
    parts += [markdown.table(table, level=3) for table in study.results[_FIRST:]]
    if study.examples:
        parts += ["### Example generations", examples_markdown(study.examples)]
    return parts + [markdown.table(table, level=3) for table in study.facts]
