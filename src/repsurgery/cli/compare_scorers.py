"""``repsurgery compare-scorers``: compare toxicity scorers with archived scores and with each other."""

import json
from pathlib import Path
from typing import Annotated, Any

from repsurgery.checkpoint import write_text
from repsurgery.cli.output import say_table
from repsurgery.cli.terminal import typer
from repsurgery.outputs import check_output

__all__ = ["compare_scorers"]


def compare_scorers(
    scorers: Annotated[
        list[str] | None, typer.Argument(help="Names of scorers.", show_default="linear bilstm minilm")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of Jigsaw and RealToxicityPrompts.", show_default="$REPSURGERY_DATA, or the hub"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file for the figures.")] = None,
) -> dict[str, Any]:
    """Compare toxicity scorers on the archived texts that the MiniLM scorer was not trained on."""
    from repsurgery.studies.toxicity.minilm.comparison import compare_scorers as compare
    from repsurgery.studies.toxicity.minilm.comparison import comparison_tables
    from repsurgery.studies.toxicity.minilm.rows import scorer_rows

    if out is not None:
        check_output(out)
    record = compare(scorers or ["linear", "bilstm", "minilm"], scorer_rows(data_dir).never_seen)
    if out is not None:
        write_text(out, json.dumps(record, indent=2) + "\n")
    for table in comparison_tables(record):
        say_table(table)
    return dict(record)
