"""All studies as one self-contained page, and as a Markdown file with its figures beside it."""

import os
from collections.abc import Iterable
from pathlib import Path

from repsurgery.checkpoint import write_text
from repsurgery.errors import RecordError
from repsurgery.studies.common.report.rendering import render
from repsurgery.studies.common.report.sections import Section
from repsurgery.studies.common.report.tables import Table
from repsurgery.studies.fairness.record import StudyRecord
from repsurgery.studies.fairness.report.facts import summary_table
from repsurgery.studies.fairness.report.section import study_sections
from repsurgery.studies.records import Record
from repsurgery.studies.toxicity.record import ToxicityRecord
from repsurgery.studies.toxicity.report.facts import toxicity_summary_table
from repsurgery.studies.toxicity.report.section import toxicity_sections

__all__ = ["REPORT_FILES", "write_report", "write_study_report"]

REPORT_FILES = ("index.html", "report.md", "*.svg")
"""Patterns of the names of the files in a report's folder."""

_LEAD = (
    "All numbers below come from records of studies. This page computes only verdicts and adjusted p-values, and the "
    "intervals and tests that older records lack."
)


def write_report(record: Record, folder: str | os.PathLike[str]) -> Path:
    """Write the report of one record; see `write_study_report`."""
    return write_study_report([record], folder)


def write_study_report(records: Iterable[Record], folder: str | os.PathLike[str]) -> Path:
    """Write ``index.html``, ``report.md`` and its figures into ``folder``, each file completely or not at all.

    The page is self-contained: no script, no font, no picture from elsewhere. Equal records give equal bytes.

    Parameters
    ----------
    records : iterable of StudyRecord or ToxicityRecord
        One section each: fairness studies first, then toxicity studies, each kind in this order and with a summary.
    folder : path
        Created if it is missing; files of an older report are replaced.

    Returns
    -------
    Path
        Of ``index.html``.

    Raises
    ------
    RecordError
        Without a record. Nothing is written.
    MissingExtraError
        Without Jinja2 or matplotlib. Nothing is written.
    """
    listed = list(records)
    if not listed:
        raise RecordError("There are no records to report. Run `repsurgery reproduce` first, or name its files.")
    kinds: list[str] = []
    summaries: list[Table] = []
    sections: list[Section] = []
    fairness = [record for record in listed if isinstance(record, StudyRecord)]
    toxicity = [record for record in listed if isinstance(record, ToxicityRecord)]
    if fairness:
        kinds.append("fairness")
        summaries.append(summary_table(fairness))
        sections += study_sections(fairness)
    if toxicity:
        kinds.append("toxicity")
        summaries.append(toxicity_summary_table(toxicity, first=len(fairness) + 1))
        sections += toxicity_sections(toxicity, first=len(fairness) + 1)
    title = f"{' and '.join(kinds).capitalize()} studies: affine steering of representations"
    page, text = (
        render(template, title=title, lead=_LEAD, summaries=summaries, sections=sections)
        for template in ("page.html.jinja", "page.md.jinja")
    )
    for drawing in (drawing for section in sections for drawing in section.drawings):
        write_text(Path(folder) / drawing.file, drawing.svg)
    write_text(Path(folder) / "report.md", text)
    return write_text(Path(folder) / "index.html", page)
