"""The demonstration as one HTML file that needs nothing else: no script, no font, no picture from elsewhere."""

import os
from html import escape
from pathlib import Path

from repsurgery.checkpoint import write_text
from repsurgery.studies.common.report.html import bullets, document, figure, pairs, table
from repsurgery.studies.common.report.tables import certificates_table, outcomes_table
from repsurgery.studies.demo.plots import plot_clouds, plot_tradeoff
from repsurgery.studies.demo.record import DemoRecord

__all__ = ["page", "write_report"]


def write_report(record: DemoRecord, folder: str | os.PathLike[str]) -> Path:
    """Write ``index.html`` into ``folder``, whole or not at all, and return its path."""
    return write_text(Path(folder) / "index.html", page(record))


def page(record: DemoRecord) -> str:
    """Return the report as HTML text."""
    title = f"From {record.source} to {record.target}: affine surgery on a language model"
    total = sum(record.seconds.values())
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(record.model)}, steered while it generates. '
        f"Every figure below was computed in one run of {total:.0f} seconds.</p>",
        table(outcomes_table(record)),
        "<h2>What to keep in mind</h2>",
        bullets(record.notes),
        "<h2>Toxicity against fluency</h2>",
        figure(plot_tradeoff(record), "Filled: every vector is steered. Hollow: only vectors the gate picks."),
        table(certificates_table(record)),
        "<h2>Hidden states before and after</h2>",
        figure(
            plot_clouds(record),
            "Held-out texts, last token, steered as the gate decides. Crosses are class means; directions are those of "
            "the fitted texts. Axes are shared and cut at the outermost 0.5 % of points.",
        ),
        "<h2>Continuations side by side</h2>",
        _examples(record),
        "<h2>How it was made</h2>",
        pairs(_facts(record)),
    ]
    return document(title, parts)


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
