"""``repsurgery export``: write a steering as a folded model, a LoRA adapter or a control vector of llama.cpp."""

from pathlib import Path
from typing import Annotated, Any, Literal

from repsurgery.cli.options import Device, Dtype, Scale
from repsurgery.cli.output import say
from repsurgery.cli.terminal import typer
from repsurgery.outputs import check_new_file, check_new_folder

__all__ = ["export", "write_export"]

Target = Literal["folder", "lora", "gguf"]


def export(
    file: Annotated[str, typer.Argument(help="Steering file, a name of the zoo, or hub:OWNER/NAME.")],
    to: Annotated[
        Target,
        typer.Option(help="A model for transformers, an adapter for PEFT, or a control vector for llama.cpp."),
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
) -> dict[str, Any]:
    """Write a steering in a form that transformers, PEFT or llama.cpp load."""
    return write_export(
        *(file, out, to, site, strength, scale),
        model=model,
        device=device,
        dtype=dtype,
        every_vector=every_vector,
        other_model=other_model,
        custom_code=custom_code,
        rank=rank,
    )


def write_export(
    file: str, out: Path, to: Target, site: str | None, strength: float | None, scale: float = 1.0, **how: Any
) -> dict[str, Any]:
    """Export, say what was written, and return its document; ``how`` are arguments of `export_steering`."""
    (check_new_file if to == "gguf" else check_new_folder)(out)
    from repsurgery.workflows.export import export_steering
    from repsurgery.workflows.steerings import open_steering

    opened = open_steering(file, site, strength, scale=scale)
    exported = export_steering(opened, out, to=to, **how)
    say(f"Exported {opened.words}.")
    say(f"Wrote {exported.path}. {' '.join(exported.facts)}")
    if how.get("every_vector"):
        say("It acts on every vector and at every position; a gate or positions of the file are not in it.")
    say("Load it with:")
    for line in exported.code:
        say(f"    {line}", wrap=False)
    return {name: getattr(exported, name) for name in ("path", "to", "exact", "facts", "code")}
