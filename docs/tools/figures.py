"""Figures and tables of the pages, drawn at build time from the committed records; no number is typed by hand.

``<!-- figure: price tradeoff-2 -->`` in a page of docs/results is a figure of a study in the report of
`repsurgery report`, ``<!-- table: rivals | What each method needs -->`` is one of its tables.
"""

import html
import re
from functools import cache
from pathlib import Path
from typing import Any

import front  # beside this file, whose folder MkDocs puts on the path while it loads a hook
import speed

ROOT = Path(__file__).parents[2]
FOLDER = "results/figures"
STUDIES = {
    "paper": "toxicity-jigsaw-smollm2_135m-local-7af451f0aac3",
    "ablation": "toxicity-jigsaw-smollm2_135m-local-1c959ac3c7fc",
    "sites": "toxicity-jigsaw-smollm2_135m-local-a9e45f9a9ecf",
    "price": "toxicity-jigsaw-smollm2_135m-local-4c77ce1baa03",
    "dialect": "dialect-dialect_stand_in-minilm-paper-71553d07111d",
    "dialect-balanced": "dialect-dialect_stand_in-minilm-paper-e18f658c530f",
    "bios": "bios-synthetic_bios-none-paper-bdfbe982bad3",
    "equal-accuracy": "bios-synthetic_bios-none-paper-cf9f452b5af1",
    "gap": "bios-gap-minilm-paper-32cc0d77554f",
    "winobias": "bios-winobias-minilm-paper-47b5cfa469e3",
}
"""Studies by name, each with the record in experiments/results that the pages show."""
MARK = re.compile(r"<!-- (figure|table): ([\w-]+) ?\|? ([^>]+?) -->")


@cache
def record_of(study: str) -> Any:
    """Return the record of a study; ``rivals`` is the largest record in experiments/rivals."""
    from repsurgery.studies.records import read_record, read_records

    if study == "rivals":
        return max(read_records([ROOT / "experiments" / "rivals"]), key=lambda r: len(r.configurations))
    return read_record(ROOT / "experiments" / "results" / f"{STUDIES[study]}.json")


@cache
def section(study: str) -> Any:
    """Return the section of a study in the report."""
    from repsurgery.studies.fairness.report.section import study_sections
    from repsurgery.studies.toxicity.report.section import toxicity_sections

    record = record_of(study)
    sections = toxicity_sections if record.experiment == "toxicity" else study_sections
    return sections([record])[0]


@cache
def drawing(study: str, name: str) -> tuple[str, str]:
    """Return a figure of a study as SVG text, and its caption."""
    if study == "speed":
        return speed.drawing(name)
    if name == "front":
        return front.drawing(record_of(study))
    found = {one.file.partition("-")[2].partition("-")[2].removesuffix(".svg"): one for one in section(study).drawings}
    if name not in found:
        raise KeyError(f"The study {study} has no figure {name!r}; it has {', '.join(found)}.")
    return found[name].svg, found[name].caption


def figure(study: str, name: str, *, up: str) -> str:
    """Return the HTML of a figure; ``up`` leads from the page to the root of the site."""
    caption, file = html.escape(drawing(study, name)[1]), f"{up}{FOLDER}/{study}-{name}.svg"
    image = f'<a href="{file}" title="open the figure"><img src="{file}" alt="{caption}"></a>'
    return f'<figure class="figure">{image}<figcaption>{caption}</figcaption></figure>'


def table(study: str, title: str) -> str:
    """Return a table of a study as Markdown, with its caption."""
    found = {one.title: one for one in section(study).results}
    if title not in found:
        raise KeyError(f"The study {study} has no table {title!r}; it has {', '.join(found)}.")
    one = found[title]
    rows = [one.headings, ["---"] * len(one.headings), *one.rows]
    lines = ["| " + " | ".join(cell.replace("|", "&#124;") for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", one.caption, ""])


def marks(text: str, kind: str) -> list[tuple[str, str]]:
    """Return the studies and names of the figures or tables that a page shows.

    >>> marks("<!-- figure: price tradeoff-2 --> <!-- table: rivals | What each method needs -->", "figure")
    [('price', 'tradeoff-2')]
    """
    return [(found[2], found[3]) for found in MARK.finditer(text) if found[1] == kind]


def on_files(files: Any, config: Any) -> Any:
    """Add the figures that pages show."""
    from mkdocs.structure.files import File

    shown = {mark for file in files.documentation_pages() for mark in marks(file.content_string, "figure")}
    for study, name in sorted(shown):
        files.append(File.generated(config, f"{FOLDER}/{study}-{name}.svg", content=drawing(study, name)[0]))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put figures and tables into a page."""
    up = "../" * page.file.dest_uri.count("/")

    def put(found: re.Match[str]) -> str:
        return figure(found[2], found[3], up=up) if found[1] == "figure" else table(found[2], found[3])

    return MARK.sub(put, markdown)
