"""Studies as one page that needs nothing else, and as Markdown with its figures beside it."""

import os
from collections.abc import Iterable
from html import escape
from pathlib import Path

from repsurgery.errors import RecordError
from repsurgery.studies.common.report import html, markdown
from repsurgery.studies.common.report.facts import distinctions
from repsurgery.studies.common.report.sections import Section, section_html, section_markdown
from repsurgery.studies.common.report.tables import Table
from repsurgery.studies.common.report.writing import write_whole
from repsurgery.studies.fairness.record import StudyRecord
from repsurgery.studies.fairness.report.facts import summary_table
from repsurgery.studies.fairness.report.section import study_section
from repsurgery.studies.records import Record
from repsurgery.studies.toxicity.record import ToxicityRecord
from repsurgery.studies.toxicity.report.section import toxicity_section
from repsurgery.studies.toxicity.report.summary import toxicity_summary_table

__all__ = ["REPORT_FILES", "write_report", "write_study_report"]

REPORT_FILES = ("index.html", "report.md", "*.svg")
"""Patterns of the names that a report has in its folder."""

_LEAD = "Every number below stands in a record; nothing is computed by this page but verdicts."


def write_study_report(records: Iterable[Record], folder: str | os.PathLike[str]) -> Path:
    """Write ``index.html``, ``report.md`` and its figures into ``folder``, each whole or not at all.

    The page is self-contained: no script, no font, no picture from elsewhere. Equal records give equal bytes.

    Parameters
    ----------
    records : iterable of StudyRecord or ToxicityRecord
        One section each: fairness studies first, then toxicity studies, each kind in this order and with a summary.
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
    fairness = [record for record in held if isinstance(record, StudyRecord)]
    toxicity = [record for record in held if isinstance(record, ToxicityRecord)]
    title = _title(fairness, toxicity)
    summaries = _summaries(fairness, toxicity)
    studies = _sections([*fairness, *toxicity])
    page, text = _page(title, summaries, studies), _text(title, summaries, studies)
    for study in studies:
        for drawing in study.drawings:
            write_whole(drawing.svg, Path(folder) / drawing.file)
    write_whole(text, Path(folder) / "report.md")
    return write_whole(page, Path(folder) / "index.html")


def write_report(record: Record, folder: str | os.PathLike[str]) -> Path:
    """Write the report of one record; see `write_study_report`."""
    return write_study_report([record], folder)


def _title(fairness: list[StudyRecord], toxicity: list[ToxicityRecord]) -> str:
    kinds = [kind for kind, held in (("fairness", fairness), ("toxicity", toxicity)) if held]
    return f"{' and '.join(kinds).capitalize()} studies: affine surgery on representations"


def _summaries(fairness: list[StudyRecord], toxicity: list[ToxicityRecord]) -> list[Table]:
    tables = [summary_table(fairness)] if fairness else []
    return [*tables, toxicity_summary_table(toxicity, first=len(fairness) + 1)] if toxicity else tables


def _sections(records: list[Record]) -> list[Section]:
    told = distinctions(records)
    return [
        study_section(i, record, words) if isinstance(record, StudyRecord) else toxicity_section(i, record, words)
        for i, (record, words) in enumerate(zip(records, told, strict=True), 1)
    ]


def _page(title: str, summaries: list[Table], studies: list[Section]) -> str:
    contents = "".join(f'<li><a href="#{study.anchor}">{escape(study.title)}</a></li>' for study in studies)
    parts = [f"<h1>{title}</h1>", f'<p class="lead">{_LEAD}</p>', *map(html.table, summaries)]
    if len(studies) > 1:
        parts.append(f'<h2>Contents</h2>\n<ul class="contents">{contents}</ul>')
    return html.document(title, [*parts, *map(section_html, studies)])


def _text(title: str, summaries: list[Table], studies: list[Section]) -> str:
    blocks = [block for study in studies for block in section_markdown(study)]
    return "\n\n".join([f"# {title}", _LEAD, *map(markdown.table, summaries), *blocks]) + "\n"
