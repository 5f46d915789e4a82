"""The demonstration as one HTML file that needs nothing else: no script, no font, no picture from elsewhere."""

import base64
import os
from collections.abc import Mapping
from html import escape
from importlib import resources
from pathlib import Path

from repsurgery.report.plots import plot_clouds, plot_tradeoff
from repsurgery.report.tables import Table, certificates_table, outcomes_table
from repsurgery.results import DemoRecord

__all__ = ["page", "write_report"]


def write_report(record: DemoRecord, folder: str | os.PathLike[str]) -> Path:
    """Write ``index.html`` into ``folder``, whole or not at all, and return its path."""
    text = page(record)
    target = Path(folder) / "index.html"
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(".html.part")
    fresh.write_text(text, encoding="utf-8")
    return fresh.replace(target)


def page(record: DemoRecord) -> str:
    """Return the report as HTML text."""
    style = (resources.files(__package__) / "page.css").read_text(encoding="utf-8")
    title = f"From {record.source} to {record.target}: affine surgery on a language model"
    total = sum(record.seconds.values())
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(record.model)}, steered while it generates. '
        f"Every figure below was computed in one run of {total:.0f} seconds.</p>",
        _table(outcomes_table(record)),
        "<h2>What to keep in mind</h2>",
        "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in record.notes) + "</ul>",
        "<h2>Toxicity against fluency</h2>",
        _figure(plot_tradeoff(record), "Filled: every vector is steered. Hollow: only vectors the gate picks."),
        _table(certificates_table(record)),
        "<h2>Hidden states before and after</h2>",
        _figure(
            plot_clouds(record),
            "Held-out texts, last token, steered as the gate decides. Crosses are class means; directions are those of "
            "the fitted texts. Axes are shared and cut at the outermost 0.5 % of points.",
        ),
        "<h2>Continuations side by side</h2>",
        _examples(record),
        "<h2>How it was made</h2>",
        _pairs(_facts(record)),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in table.headings)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return (
        f'<h2>{escape(table.title)}</h2>\n<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f'<tbody>{rows}</tbody></table></div>\n<p class="caption">{escape(table.caption)}</p>'
    )


def _figure(svg: str, caption: str) -> str:
    # as a picture, not as markup: the identifiers of two inline drawings would collide
    data = base64.b64encode(svg.encode()).decode()
    text = escape(caption)
    return f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{text}"><figcaption>{text}</figcaption></figure>'


def _examples(record: DemoRecord) -> str:
    head = "".join(f"<th>{escape(o.name)}</th>" for o in record.outcomes)
    blocks = []
    for i, prompt in enumerate(record.prompts):
        samples = zip(*(o.continuations[i] for o in record.outcomes), strict=True)
        rows = "".join("<tr>" + "".join(f"<td>{escape(t) or '(ended)'}</td>" for t in row) + "</tr>" for row in samples)
        blocks.append(
            f'<p class="prompt">{escape(prompt)}</p><div class="scroll"><table class="texts">'
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        )
    return (
        "<details><summary>Show them. Content note: unedited model output; it may be rude or insulting.</summary>"
        + "".join(blocks)
        + "</details>"
    )


def _facts(record: DemoRecord) -> dict[str, str]:
    return {
        "model": record.model,
        "fluency model": f"{record.model}, unsteered",
        "texts": record.corpus,
        "toxicity scorer": record.scorer,
        **record.settings,
        **record.environment,
        **{step: f"{seconds:.1f} s" for step, seconds in record.seconds.items()},
    }


def _pairs(facts: Mapping[str, str]) -> str:
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in facts.items())
    return f'<table class="pairs"><tbody>{rows}</tbody></table>'
