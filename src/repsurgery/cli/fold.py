"""``repsurgery fold``: put a steering into the weights of a model."""

from pathlib import Path
from typing import Annotated

from repsurgery.cli.terminal import Console, escape, typer
from repsurgery.outputs import check_output_folder

__all__ = ["fold"]


def fold(
    file: Annotated[Path, typer.Argument(help="File of a map, steering function or estimator.")],
    out: Annotated[Path, typer.Option(help="Output folder, new or empty.")],
    model: Annotated[str, typer.Option(help="Embedded name, folder, or hub id.")] = "smollm2-135m",
    site: Annotated[
        str | None, typer.Option(help="Site where the map acts.", show_default="the site in the file, else final")
    ] = None,
    strength: Annotated[
        float | None,
        typer.Option(help="0 leaves vectors unchanged, 1 is the fitted map.", show_default="as in the file, else 1"),
    ] = None,
    every_vector: Annotated[
        bool, typer.Option("--every-vector", help="Fold the map without its gate; it then acts on every vector.")
    ] = False,
    custom_code: Annotated[
        bool, typer.Option("--custom-code", help="Allow an output folder that needs its own code to load.")
    ] = False,
) -> None:
    """Fold a map into a model's weights and save an ordinary model folder."""
    check_output_folder(out)
    from repsurgery.workflows.fold import fold_into
    from repsurgery.workflows.steerings import open_steering

    opened = open_steering(file, site, strength)
    folder = fold_into(opened, out, model=model, every_vector=every_vector, custom_code=custom_code)
    Console().print(f"Folded {escape(opened.words)}.", soft_wrap=True)
    Console().print(f"Wrote {escape(str(folder))}; it loads like any other model.", soft_wrap=True)
