"""``repsurgery report``: records of studies in, Markdown and one self-contained page out."""

from pathlib import Path
from typing import Annotated

from repsurgery.cli.needs import Console, escape, typer
from repsurgery.outputs import check_output_folder

__all__ = ["report"]


def report(
    records: Annotated[list[Path] | None, typer.Argument(help="Records, or folders of them.")] = None,
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("reports/studies"),
) -> None:
    """Render records of studies as a page, with the published figures beside ours."""
    from repsurgery.studies.page import REPORT_FILES, write_study_report
    from repsurgery.studies.records import read_records

    held = records or [Path("experiments/results")]
    check_output_folder(out, inputs=held, writes=REPORT_FILES)
    page = write_study_report(read_records(held), out)
    Console().print(f"Report: {escape(str(page.resolve()))}", soft_wrap=True, highlight=False)
