"""The command ``repsurgery``: its verbs, each imported when it is used, and how errors reach the user."""

import ast
import errno
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, cast

import repsurgery
from repsurgery.cli import INTERRUPTED
from repsurgery.cli.terminal import Console, escape, typer
from repsurgery.errors import ParameterError, SurgeryError, SurgeryWarning

# `terminal` has already reported a missing Typer or Rich
from typer.core import TyperCommand, TyperGroup  # isort: skip
from typer.main import get_command  # isort: skip

__all__ = ["app"]

VERBS = (
    *("tune", "fit", "moments", "merge", "plan", "generate", "inspect", "fold"),
    *("demo", "guarantees", "reproduce", "report", "lm-eval"),
    *("rivals", "train-scorer", "compare-scorers"),
)
"""The verb ``a-b`` is the function ``a_b`` of the module ``repsurgery.cli.a_b``, whose docstring is its help."""
RESUMABLE = ("demo", "moments", "reproduce", "rivals", "train-scorer", "tune")
"""Verbs that store finished work and continue from it when they are run again; `fit` does so with --on-policy."""
RESUMES = "repsurgery.resumes"
"""Where a verb notes, in what its context shares with the group, whether it resumes."""


class Verb(TyperCommand):
    """One verb, whose errors name flags: "batch_rows is 0; …" becomes "--batch-rows is 0; …"."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        ctx.meta[RESUMES] = self.name in RESUMABLE or ctx.params.get("on_policy", False)
        try:
            return super().invoke(ctx)
        except ParameterError as error:
            name, is_, problem = str(error).partition(" is ")
            flags = [p.opts[0] for p in self.params if p.name == name and ctx.params[name] is not None]
            if not flags:
                raise
            raise type(error)(f"{flags[0]}{is_}{problem}") from error


class Verbs(TyperGroup):
    """All verbs, each imported when it is used.

    An error of this package is printed as one line, and the exit code is 1; any other exception is a bug and keeps its
    traceback. Ctrl-C also prints one line, and the exit code is 130, as shells expect.

    Guarantees
    ----------
    Listing the verbs imports none of them, and neither NumPy nor scikit-learn (test_help_imports_no_verb).
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast("dict[str, Any]", dict.fromkeys(VERBS))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb, imported now; None where there is no such verb."""
        if cmd_name in VERBS and self.commands[cmd_name] is None:
            name = cmd_name.replace("-", "_")
            module = import_module(f"repsurgery.cli.{name}")
            single = typer.Typer(add_completion=False)
            settings = getattr(module, "SETTINGS", None)
            single.command(cmd_name, cls=Verb, context_settings=settings)(getattr(module, name))
            self.commands[cmd_name] = get_command(single)
        return self.commands.get(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """List the verbs with the help in their sources, without importing them."""
        self.commands = {verb: TyperCommand(verb, help=_help_in_source(verb)) for verb in VERBS}
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen verb."""
        try:
            with _warnings_on_one_line():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            verb = ctx.invoked_subcommand
            resumes = ctx.meta.get(RESUMES, verb in RESUMABLE)
            line = f"{verb} stopped; run again to resume." if resumes else "Stopped."
            Console(stderr=True, soft_wrap=True).print(line, highlight=False)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise  # nobody reads the output any more: `main` exits silently
        except (SurgeryError, OSError) as error:
            if ctx.params.get("debug"):
                raise
            line = " ".join(str(error).split())
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                line += ". Make room, and run the same command again."
            Console(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {escape(line)}")
            raise typer.Exit(1) from error


def _help_in_source(verb: str) -> str | None:
    name = verb.replace("-", "_")
    tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8"))
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    return ast.get_docstring(function)


@contextmanager
def _warnings_on_one_line() -> Iterator[None]:
    """Print each warning of this package on one line; Python prints all other warnings as usual."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", SurgeryWarning)
        show_as_usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, SurgeryWarning):
                console = Console(stderr=True, soft_wrap=True)
                console.print(f"[bold yellow]Warning:[/] {escape(str(message))}", highlight=False)
            else:
                show_as_usual(message, category, *where, **more)

        warnings.showwarning = show
        yield


app = typer.Typer(
    cls=Verbs,
    help=repsurgery.__doc__,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"repsurgery {repsurgery.__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Declare the options of every command: `Verbs` reads debug, and version has a callback."""
