"""``repsurgery merge``: add the moments in several files, for example those of several machines."""

from pathlib import Path
from typing import Annotated, Any

from repsurgery.cli.output import say
from repsurgery.cli.terminal import typer

__all__ = ["merge"]


def merge(
    files: Annotated[list[Path], typer.Argument(help="Files of moments of different rows.")],
    out: Annotated[Path, typer.Option(help="Output file.")],
) -> dict[str, Any]:
    """Add the moments in several files. Refuses files that are known to share rows."""
    from repsurgery.scale import merge_files

    total = merge_files(files, out)
    counts = {str(label): m.count for label, m in total.items()}
    listed = ", ".join(f"{label}: {count}" for label, count in counts.items())
    say(f"Wrote {out}: {sum(counts.values())} rows of {total.dim} features ({listed}).")
    return {"file": out, "rows": sum(counts.values()), "features": total.dim, "counts": counts}
