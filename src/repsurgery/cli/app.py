"""The command ``repsurgery``: its verbs, and how errors reach the user."""

import errno
from typing import Annotated, Any

import repsurgery
from repsurgery.cli import INTERRUPTED
from repsurgery.cli.needs import Console, escape, typer
from repsurgery.errors import SurgeryError

# the verbs import from `needs`, so a missing extra has already been named here
from typer.core import TyperGroup  # isort: skip

from repsurgery.cli.demo import demo
from repsurgery.cli.fit import fit
from repsurgery.cli.fold import fold
from repsurgery.cli.generate import generate
from repsurgery.cli.guarantees import guarantees
from repsurgery.cli.inspect import inspect
from repsurgery.cli.lm_eval import SETTINGS, lm_eval
from repsurgery.cli.merge import merge
from repsurgery.cli.moments import moments
from repsurgery.cli.plan import plan
from repsurgery.cli.report import report
from repsurgery.cli.reproduce import reproduce
from repsurgery.cli.show import plain_warnings

__all__ = ["app"]

RESUMABLE = ("demo", "moments", "reproduce")
"""Verbs that keep what is finished, and go on from there."""


class OneLineErrors(TyperGroup):
    """Print an error of ours as one line and leave with 1; everything else is a bug and keeps its traceback.

    Ctrl-C is one line too, and leaves with 130 as the shell expects it.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen verb."""
        try:
            with plain_warnings():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            verb = ctx.invoked_subcommand
            line = f"{verb} stopped; run again to resume." if verb in RESUMABLE else "Stopped."
            Console(stderr=True, soft_wrap=True).print(line, highlight=False)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise  # nobody reads any more: the caller leaves without a word
        except (SurgeryError, OSError) as error:
            if ctx.params.get("debug"):
                raise
            line = " ".join(str(error).split())
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                line += ". Make room, and run the same command again."
            Console(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {escape(line)}")
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=OneLineErrors,
    help=repsurgery.__doc__,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"repsurgery {repsurgery.__version__}")
        raise typer.Exit


@app.callback()
def repsurgery_command(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Steer and erase concepts in language models by affine maps that carry their own proof."""


for verb in (fit, moments, merge, plan, generate, inspect, fold, demo, guarantees, reproduce, report):
    app.command()(verb)
app.command("lm-eval", context_settings=SETTINGS)(lm_eval)
