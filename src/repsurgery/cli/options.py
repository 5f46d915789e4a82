"""Options that several commands share: where a model is loaded, whether it is spoken to in a chat, and how we speak."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import repsurgery
from repsurgery.cli.terminal import typer
from repsurgery.errors import ParameterError
from repsurgery.registry import Registry

__all__ = ["Chat", "Debug", "Device", "Dtype", "Json", "Quiet", "Scale", "Version", "name_in"]


def name_in(registry: Registry[Any]) -> Callable[[str | None], str | None]:
    """Return the callback of an option whose value is a name in ``registry``; no plugin is imported."""

    def known(name: str | None) -> str | None:
        names = registry.names()
        if name is not None and name not in names:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, names))}.")
        return name

    return known


def _device(name: str | None) -> str | None:
    """Return the name of a device that exists; torch is imported only if one is named."""
    if name is None:
        return None
    from repsurgery.lm.load.models import check_loading

    try:
        check_loading(name, None)
    except ParameterError as error:
        raise typer.BadParameter(str(error)) from error
    if name == "meta":
        raise typer.BadParameter("device='meta' holds no numbers, so no model runs there. Name cpu or cuda.")
    return name


Device = Annotated[
    str | None,
    typer.Option(
        callback=_device,
        help="Device of the model: cpu, cuda, cuda:1, mps, or auto to distribute it.",
        show_default="cpu",
    ),
]
Dtype = Annotated[
    Literal["float32", "bfloat16", "float16", "float64"] | None,
    typer.Option(help="Number format of the weights.", show_default="as they were saved"),
]
Chat = Annotated[
    bool,
    typer.Option("--chat", help="Speak through the model's chat template: a plain prompt is a user's message."),
]

Scale = Annotated[
    float,
    typer.Option(help="Multiplies that strength: 1 is as tuned, 2 twice as strong, 0 nothing, -1 the other way."),
]

_PANEL = "Options of every command"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"repsurgery {repsurgery.__version__}")
        raise typer.Exit


Json = Annotated[
    bool,
    typer.Option("--json", rich_help_panel=_PANEL, help="Print the result as one JSON document, and nothing else."),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", rich_help_panel=_PANEL, help="No progress, no steps; the result, warnings and errors stay."
    ),
]
Debug = Annotated[bool, typer.Option("--debug", rich_help_panel=_PANEL, help="Show the traceback of an error.")]
Version = Annotated[
    bool,
    typer.Option(
        "--version",
        callback=_print_version,
        is_eager=True,
        rich_help_panel=_PANEL,
        help="Print the version and exit.",
    ),
]
