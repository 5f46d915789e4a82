"""``repsurgery report``: records of studies in, Markdown and one self-contained page out."""

from pathlib import Path
from typing import Annotated

from repsurgery.cli.needs import Console, escape, typer

__all__ = ["report"]


def report(
    records: Annotated[list[Path] | None, typer.Argument(help="Records, or folders of them.")] = None,
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("reports/studies"),
) -> None:
    """Render records of studies as a page, with the published figures beside ours."""
    from repsurgery.report import write_study_report
    from repsurgery.results import read_records

    page = write_study_report(read_records(records or [Path("experiments/results")]), out)
    Console().print(f"Report: {escape(str(page.resolve()))}", soft_wrap=True, highlight=False)
