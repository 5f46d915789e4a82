"""``repsurgery export``: write a steering in the form of another program."""

from pathlib import Path
from typing import Annotated, Any

from repsurgery.cli.options import Device, Dtype, Scale, name_in
from repsurgery.cli.output import say
from repsurgery.cli.terminal import typer
from repsurgery.errors import OptionsError
from repsurgery.exporters import EXPORTERS

__all__ = ["CHOICES", "export", "write_export"]

CHOICES = {"to": EXPORTERS.names}
"""The parameters whose values plugins add to."""


def export(
    file: Annotated[str, typer.Argument(help="Steering file, a name of the zoo, or hub:OWNER/NAME.")],
    to: Annotated[
        str,
        typer.Option(
            callback=name_in(EXPORTERS),
            help="A model for transformers, an adapter for PEFT, a control vector for llama.cpp, or a plugin's file.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Output: a new or empty folder; with --to gguf, a new file.")],
    model: Annotated[str, typer.Option(help="Embedded name, folder, or hub id.")] = "smollm2-135m",
    device: Device = None,
    dtype: Dtype = None,
    site: Annotated[
        str | None, typer.Option(help="Site where the map acts.", show_default="the site in the file, else final")
    ] = None,
    strength: Annotated[
        float | None,
        typer.Option(help="0 leaves vectors unchanged, 1 is the fitted map.", show_default="as in the file, else 1"),
    ] = None,
    scale: Scale = 1.0,
    every_vector: Annotated[
        bool,
        typer.Option("--every-vector", help="Export the map without its gate and positions; it acts on every vector."),
    ] = False,
    other_model: Annotated[
        bool, typer.Option("--other-model", help="Export for another model than the one the file was fitted on.")
    ] = False,
    custom_code: Annotated[
        bool, typer.Option("--custom-code", help="With --to folder: allow a folder that needs its own code to load.")
    ] = False,
    rank: Annotated[
        int | None,
        typer.Option(help="With --to lora: approximate a map of higher rank.", show_default="exact or refused"),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the export of a plugin, as NAME=VALUE. Repeatable.")
    ] = None,
) -> dict[str, Any]:
    """Write a steering in a form that transformers, PEFT, llama.cpp or the program of a plugin load."""
    return write_export(
        file,
        out,
        to,
        site,
        strength,
        scale,
        model=model,
        device=device,
        dtype=dtype,
        every_vector=every_vector,
        other_model=other_model,
        custom_code=custom_code,
        rank=rank,
        option=option,
    )


def write_export(
    file: str,
    out: Path,
    to: str,
    site: str | None,
    strength: float | None,
    scale: float = 1.0,
    *,
    model: str,
    device: str | None,
    dtype: str | None,
    every_vector: bool,
    other_model: bool,
    custom_code: bool,
    every_position: bool = False,
    rank: int | None = None,
    option: list[str] | None = None,
) -> dict[str, Any]:
    """Export, say what was written, and return its document; see `export_steering`."""
    options = dict(_named(pair) for pair in option or ())
    from repsurgery.workflows.export import check_out, export_steering
    from repsurgery.workflows.steerings import open_steering

    check_out(EXPORTERS[to], out)
    opened = open_steering(file, site, strength, scale=scale)
    exported = export_steering(
        opened,
        out,
        to=to,
        model=model,
        device=device,
        dtype=dtype,
        every_vector=every_vector,
        every_position=every_position,
        other_model=other_model,
        custom_code=custom_code,
        rank=rank,
        options=options,
    )
    say(f"Exported {opened.words}.")
    say(f"Wrote {exported.path}. {' '.join(exported.facts)}".rstrip())
    if every_vector:
        say("It acts on every vector and at every position; a gate or positions of the file are not in it.")
    say("Load it with:")
    for line in exported.code:
        say(f"    {line}", wrap=False)
    return {name: getattr(exported, name) for name in ("path", "to", "exact", "facts", "code")}


def _named(pair: str) -> tuple[str, str]:
    name, separator, value = pair.partition("=")
    if not separator:
        raise OptionsError(f"option is {pair!r}; it needs NAME=VALUE, such as bits=8.")
    return name.strip().replace("-", "_"), value.strip()
