"""``repsurgery merge``: moments of several machines into one file."""

from pathlib import Path
from typing import Annotated

from repsurgery.cli.needs import Console, escape, typer

__all__ = ["merge"]


def merge(
    files: Annotated[list[Path], typer.Argument(help="Files of moments; none may share rows.")],
    out: Annotated[Path, typer.Option(help="The file to write.")],
) -> None:
    """Add up moments, and refuse files that counted the same rows, as far as their origins tell."""
    from repsurgery.scale import merge_files

    found = merge_files(files, out)
    counts = ", ".join(f"{label}: {m.count}" for label, m in found.items())
    text = f"Wrote {out}: {sum(m.count for m in found.values())} rows of {found.dim} features ({counts})."
    Console().print(escape(text), soft_wrap=True, highlight=False)
