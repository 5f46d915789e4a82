"""``repsurgery merge``: add the moments in several files, for example those of several machines."""

from pathlib import Path
from typing import Annotated

from repsurgery.cli.terminal import Console, escape, typer

__all__ = ["merge"]


def merge(
    files: Annotated[list[Path], typer.Argument(help="Files of moments of different rows.")],
    out: Annotated[Path, typer.Option(help="Output file.")],
) -> None:
    """Add the moments in several files. Refuses files that are known to share rows."""
    from repsurgery.scale import merge_files

    total = merge_files(files, out)
    counts = ", ".join(f"{label}: {m.count}" for label, m in total.items())
    text = f"Wrote {out}: {sum(m.count for m in total.values())} rows of {total.dim} features ({counts})."
    Console().print(escape(text), soft_wrap=True, highlight=False)
