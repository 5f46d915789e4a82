"""``repsurgery report``: renders records of studies as one self-contained page and as Markdown."""

from pathlib import Path
from typing import Annotated, Any

from repsurgery.cli.output import say
from repsurgery.cli.terminal import typer
from repsurgery.outputs import check_output_folder

__all__ = ["report"]


def report(
    records: Annotated[list[Path] | None, typer.Argument(help="Record files, or folders of record files.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("reports/studies"),
) -> dict[str, Any]:
    """Render the records of studies as a page and as Markdown, beside the published figures."""
    from repsurgery.studies.page import REPORT_FILES, write_study_report
    from repsurgery.studies.records import read_records

    paths = records or [Path("experiments/results")]
    check_output_folder(out, inputs=paths, writes=REPORT_FILES)
    page = write_study_report(read_records(paths), out).resolve()
    say(f"Report: {page}")
    return {"report": page}
