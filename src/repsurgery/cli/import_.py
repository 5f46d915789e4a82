"""``repsurgery import``: make a steering file of a vector of another program."""

from pathlib import Path
from typing import Annotated, Any

from repsurgery.cli.options import name_in
from repsurgery.cli.output import say
from repsurgery.cli.terminal import typer
from repsurgery.importers import IMPORTERS

__all__ = ["CHOICES", "OTHER_NAMES", "import_"]

CHOICES = {"from_": IMPORTERS.names}
"""The parameters whose values plugins add to."""
OTHER_NAMES = {"sites": "--site"}
"""What the library calls some of the options."""


def import_(
    file: Annotated[Path, typer.Argument(help="File of vectors; pickles are refused.")],
    from_: Annotated[str, typer.Option("--from", callback=name_in(IMPORTERS), help="The program that wrote it.")],
    out: Annotated[Path, typer.Option(help="Steering file to write; with several sites, a new folder of them.")],
    site: Annotated[
        list[str] | None,
        typer.Option(help="Where the vector acts. Repeatable.", show_default="the only one that the file names"),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model that must have these sites and widths.", show_default="not checked")
    ] = None,
    other_model: Annotated[
        bool, typer.Option("--other-model", help="Import a file that names another type of model.")
    ] = False,
) -> dict[str, Any]:
    """Make a steering file of a vector of repeng, steering-vectors, llama.cpp or another program."""
    from repsurgery.steering.shown import FOREIGN_WORDS
    from repsurgery.workflows.importing import import_steering

    done = import_steering(file, out, from_=from_, sites=site or (), model=model, other_model=other_model)
    for one in done:
        say(f"Imported a vector of {one.steering.dim} features at {one.steering.origin.site}.")
        say(f"Wrote {one.file}.")
    say(FOREIGN_WORDS)
    files = [{"file": one.file, "digest": one.steering.digest(), **_place(one.steering)} for one in done]
    return {"from": from_, "certified": False, "files": files}


def _place(steering: Any) -> dict[str, Any]:
    return {"site": steering.origin.site, "features": steering.dim, "origin": steering.origin.to_dict()}
