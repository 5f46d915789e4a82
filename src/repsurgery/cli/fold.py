"""``repsurgery fold``: a steering that lives in the weights."""

from pathlib import Path
from typing import Annotated

from repsurgery.cli.needs import Console, escape, typer
from repsurgery.outputs import check_output_folder

__all__ = ["fold"]


def fold(
    file: Annotated[Path, typer.Argument(help="A map, steering function or estimator.")],
    out: Annotated[Path, typer.Option(help="The folder to write, new or empty.")],
    model: Annotated[str, typer.Option(help="Embedded name, folder, or hub id.")] = "smollm2-135m",
    site: Annotated[
        str | None, typer.Option(help="Where the map acts.  [default: the site in the file, else final]")
    ] = None,
    strength: Annotated[
        float | None,
        typer.Option(help="0: not at all. 1: as fitted.  [default: the strength in the file, else 1]"),
    ] = None,
    every_vector: Annotated[
        bool, typer.Option("--every-vector", help="Fold the map without its gate: it then moves every vector.")
    ] = False,
    custom_code: Annotated[
        bool, typer.Option("--custom-code", help="Allow a folder that brings code of its own.")
    ] = False,
) -> None:
    """Fold a map into a model's weights and save an ordinary model folder."""
    from repsurgery.workflows.fold import fold_into
    from repsurgery.workflows.steerings import open_steering

    check_output_folder(out)
    used = open_steering(file, site, strength, positions="all")
    folder = fold_into(
        file, out, model=model, site=site, strength=strength, every_vector=every_vector, custom_code=custom_code
    )
    Console().print(f"Folded {escape(used.words)}.", soft_wrap=True)
    Console().print(f"Wrote {escape(str(folder))}; it loads like any other model.", soft_wrap=True)
