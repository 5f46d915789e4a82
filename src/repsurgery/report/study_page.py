"""Fairness studies as one page that needs nothing else, and as Markdown with its figures beside it."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from repsurgery.errors import RecordError
from repsurgery.report import html, markdown
from repsurgery.report.numbers import fraction
from repsurgery.report.study_facts import cautions, distinctions, fact_tables, summary_table, title_of
from repsurgery.report.study_plots import plot_cosines, plot_neighbours, plot_ratios
from repsurgery.report.study_tables import result_tables
from repsurgery.report.tables import Table
from repsurgery.report.writing import write_whole
from repsurgery.results import StudyRecord

__all__ = ["write_study_report"]

_TITLE = "Fairness studies: affine surgery on representations"
_LEAD = "Every number below stands in a record; nothing is computed by this page but verdicts."
_LONG = 24
"""Tables with more rows are folded on the page."""
_FIRST = 2
"""So many tables stand before the figures."""


@dataclass(frozen=True, slots=True)
class _Drawing:
    file: str
    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class _Study:
    """One record, drawn up: what page and Markdown both show."""

    anchor: str
    title: str
    lead: str
    cautions: list[str]
    results: list[Table]
    drawings: list[_Drawing]
    facts: list[Table]


def write_study_report(records: Iterable[StudyRecord], folder: str | os.PathLike[str]) -> Path:
    """Write ``index.html``, ``report.md`` and its figures into ``folder``, each whole or not at all.

    The page is self-contained: no script, no font, no picture from elsewhere. Equal records give equal bytes.

    Parameters
    ----------
    records : iterable of StudyRecord
        One section each, in this order.
    folder : path
        Made where it is missing; files of an older report are replaced.

    Returns
    -------
    Path
        Of ``index.html``.

    Raises
    ------
    RecordError
        Without a record. Nothing is written.
    """
    held = list(records)
    if not held:
        raise RecordError("There are no records to report. Run `repsurgery reproduce` first, or name its files.")
    told = distinctions(held)
    studies = [_study(i, record, words) for i, (record, words) in enumerate(zip(held, told, strict=True), 1)]
    summary = summary_table(held)
    page, text = _page(summary, studies), _text(summary, studies)
    for study in studies:
        for drawing in study.drawings:
            write_whole(drawing.svg, Path(folder) / drawing.file)
    write_whole(text, Path(folder) / "report.md")
    return write_whole(page, Path(folder) / "index.html")


def _study(number: int, record: StudyRecord, differs: str) -> _Study:
    preset, seconds = record.spec.get("preset", "–"), sum(record.seconds.values())
    return _Study(
        anchor=f"study-{number}",
        title=f"{number}. {title_of(record)}" + (f" ({differs})" if differs else ""),
        lead=f"Preset {preset}, finished on {record.created}; its last leg took {seconds:.0f} seconds.",
        cautions=cautions(record),
        results=result_tables(record),
        drawings=_drawings(f"study-{number}", record),
        facts=fact_tables(record),
    )


def _drawings(stem: str, record: StudyRecord) -> list[_Drawing]:
    found = [
        (
            "tpr-gap",
            plot_ratios(record, "tpr_gap"),
            "TPR gap RMS on the test split against the ratio, with bootstrap intervals; dashed, in the method's "
            "colour: published.",
        ),
        (
            "accuracy",
            plot_ratios(record, "accuracy"),
            "Accuracy on the test split against the ratio, with bootstrap intervals; dashed, in the method's colour: "
            "published.",
        ),
        (
            "neighbours",
            plot_neighbours(record),
            f"Share of the k nearest {record.spec.get('neighbour_split', 'dev')} rows with the query's concept, "
            "with bootstrap intervals. Dotted: chance, "
            "p² + (1 − p)² for two groups.",
        ),
    ]
    for i, setting in enumerate(record.settings, 1):
        where = "" if setting.ratio is None else f" at ratio {fraction(setting.ratio, digits=2)}"
        caption = (
            f"Cosine similarities of a sample ordered by concept{where}, one scale for all panels, which the diagonal "
            "of ones exceeds. Blocks on the diagonal: rows of one concept. What surgery should remove is the "
            "difference of the blocks."
        )
        found.append((f"cosine-{i}", plot_cosines(setting), caption))
    return [_Drawing(f"{stem}-{name}.svg", svg, caption) for name, svg, caption in found if svg is not None]


def _page(summary: Table, studies: list[_Study]) -> str:
    contents = "".join(f'<li><a href="#{study.anchor}">{escape(study.title)}</a></li>' for study in studies)
    parts = [f"<h1>{_TITLE}</h1>", f'<p class="lead">{_LEAD}</p>', html.table(summary)]
    if len(studies) > 1:
        parts.append(f'<h2>Contents</h2>\n<ul class="contents">{contents}</ul>')
    return html.document(_TITLE, [*parts, *map(_section, studies)])


def _section(study: _Study) -> str:
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
    parts += ["<h3>How it was made</h3>", *map(html.folded, study.facts), "</section>"]
    return "\n".join(parts)


def _text(summary: Table, studies: list[_Study]) -> str:
    parts = [f"# {_TITLE}", _LEAD, markdown.table(summary)]
    for study in studies:
        parts += [f"## {markdown.escaped(study.title)}", markdown.escaped(study.lead)]
        if study.cautions:
            parts += ["**Read this first**", markdown.bullets(study.cautions)]
        parts += [markdown.table(table, level=3) for table in study.results[:_FIRST]]
        parts += [markdown.figure(drawing.file, drawing.caption) for drawing in study.drawings]
        parts += [markdown.table(table, level=3) for table in study.results[_FIRST:]]
        parts += [markdown.table(table, level=3) for table in study.facts]
    return "\n\n".join(parts) + "\n"
