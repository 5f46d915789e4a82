"""The command ``repsurgery``: its verbs, each imported when it is used, and how results and errors reach the user."""

import ast
import errno
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Any, cast

from repsurgery.cli import INTERRUPTED
from repsurgery.cli.options import Debug, Json, Quiet, Version
from repsurgery.cli.output import Form, write_error
from repsurgery.cli.terminal import Console, escape, typer
from repsurgery.cli.usage import UsageError
from repsurgery.cli.verb import FORM, RESUMABLE, RESUMES, Verb, spoken
from repsurgery.errors import OptionsError, ParameterError, PluginWarning, SurgeryError, SurgeryWarning
from repsurgery.registry import Registry

# `terminal` has already reported a missing Typer or Rich
from typer.core import TyperCommand, TyperGroup  # isort: skip
from typer.main import get_command  # isort: skip

__all__ = ["COMMANDS", "PANELS", "VERBS", "app"]

PANELS = {
    "Start here": ("demo", "doctor"),
    "Choose and fit a steering": ("tune", "fit"),
    "Use a steering": ("zoo", "generate", "apply", "serve", "export", "import", "fold", "push"),
    "Look at what there is": ("inspect", "guarantees", "report"),
    "Studies of the paper": ("reproduce", "rivals", "lm-eval", "train-scorer", "compare-scorers"),
    "More data than one machine holds": ("moments", "merge", "plan"),
}
"""The verbs by task, in the order in which the help shows them."""
VERBS = tuple(verb for verbs in PANELS.values() for verb in verbs)
"""The verb ``a-b`` is the function ``a_b`` of the module ``repsurgery.cli.a_b``, whose docstring is its help; a verb
that Python uses for itself has an underscore at the end: ``import_``."""


def _module(verb: str) -> str:
    return f"{verb.replace('-', '_')}{'_' * iskeyword(verb)}"


COMMANDS: Registry[Any] = Registry(
    "command",
    own={verb: f"repsurgery.cli.{_module(verb)}:{_module(verb)}" for verb in VERBS},
    group="repsurgery.commands",
    needs="a Typer app or a function",
    accepts=callable,  # as a Typer app is
)
FOREIGN_PANEL = "Commands of other packages"

HELP = """Steer and erase concepts in language models with optimal affine maps, and measure what they do.

For a first look, let a search steer a real model from rude to courteous; then let it choose one for your own texts:

[bold]repsurgery demo --quick[/]

[bold]repsurgery tune texts.csv --source rude --target kind --prompts prompts.txt --out kind.safetensors[/]
"""
ENDING = """Every command has --help. With --json, stdout holds one JSON document: the result, or the error.

Exit codes: 0 success, 1 an error in the input or the work, 2 a wrong command line, 130 stopped by Ctrl-C."""


class Verbs(TyperGroup):
    """All verbs, each imported when it is used.

    An error of this package is printed as one line, and the exit code is 1, or 2 where options contradict each other;
    any other exception is a bug and keeps its traceback. Ctrl-C also prints one line, and the exit code is 130, as
    shells expect.

    Guarantees
    ----------
    Listing the verbs imports none of them, and neither NumPy nor scikit-learn (test_help_imports_no_verb).
    A missing package of any extra is one line that names the extra (test_a_command_names_the_extra_that_it_lacks).
    With --json, stdout holds one document, whatever goes wrong (test_every_failure_is_one_document).
    A command of a plugin is imported when it is used; one that is broken, or has a name of ours, is one warning, and
    everything else works (test_a_broken_command_is_one_warning, test_a_command_never_replaces_one_of_ours).
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast("dict[str, Any]", dict.fromkeys(VERBS))

    def list_commands(self, ctx: Any) -> list[str]:
        """Return our verbs and the names of plugins, which are not imported."""
        return list(COMMANDS.names())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb, imported now; None where there is no such verb."""
        if self.commands.get(cmd_name) is None and cmd_name in COMMANDS:
            self.commands[cmd_name] = _command(cmd_name)
        return self.commands.get(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """List the verbs with the help in their sources, without importing them or a plugin."""
        foreign = {name: COMMANDS.package(name) for name in self.list_commands(ctx) if name not in VERBS}
        ours: dict[str, Any] = {
            verb: TyperCommand(verb, help=_help_in_source(verb), rich_help_panel=panel)
            for panel, verbs in PANELS.items()
            for verb in verbs
        }
        self.commands = ours | {
            name: TyperCommand(name, help=f"A command of the package {package}.", rich_help_panel=FOREIGN_PANEL)
            for name, package in foreign.items()
        }
        params: list[Any] = self.params
        for param in params:  # completion, which the guide explains, would not fit a narrow terminal
            param.hidden = param.name in ("install_completion", "show_completion")
        super().format_help(ctx, formatter)

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the options before the verb."""
        asked = Form(json="--json" in args)  # what a wrong command line meant is not known before it is understood
        with _usage_errors(asked), _warnings_on_one_line():
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[FORM] = asked
        return context

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen verb."""
        try:
            with _usage_errors(ctx.meta[FORM]), _warnings_on_one_line():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            verb = ctx.invoked_subcommand
            resumes = ctx.meta.get(RESUMES, verb in RESUMABLE)
            line = f"{verb} stopped; run again to resume." if resumes else "Stopped."
            _say_error(ctx, "Interrupted", line, INTERRUPTED, heading="")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise  # nobody reads the output any more: `main` exits silently
        except (SurgeryError, OSError) as error:
            if ctx.params.get("debug"):
                raise
            line = " ".join(str(error).split())
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                line += ". Make room, and run the same command again."
            code = 2 if isinstance(error, OptionsError) else 1
            _say_error(ctx, type(error).__name__, line, code)
            raise typer.Exit(code) from error
        except ModuleNotFoundError as error:
            from repsurgery.extras import extra_of

            package = (error.name or "").partition(".")[0]
            extra = extra_of(package)
            if extra is None or ctx.params.get("debug"):
                raise
            line = f"This command needs {package}: pip install 'repsurgery[{extra}]'"
            _say_error(ctx, "MissingExtraError", line, 1)
            raise typer.Exit(1) from error


def _say_error(ctx: Any, kind: str, line: str, code: int, heading: str = "[bold red]Error:[/] ") -> None:
    if ctx.meta[FORM].json:
        write_error(kind, line, code)
    Console(stderr=True, soft_wrap=True).print(f"{heading}{escape(line)}", highlight=False)


@contextmanager
def _usage_errors(form: Form) -> Iterator[None]:
    """Write the document of a wrong command line, if JSON was asked for; Typer then explains it to people."""
    try:
        yield
    except UsageError as error:
        if form.json:
            write_error("UsageError", error.format_message(), error.exit_code)
        raise


def _command(name: str) -> Any:
    """Return the command ``name``: a function becomes a `Verb`, and a Typer app is taken as it is."""
    value = COMMANDS[name]
    if name in VERBS:
        return _verb(name, value)
    try:
        command = get_command(value) if isinstance(value, typer.Typer) else _verb(name, value)
    except Exception as error:  # Typer does not understand what the plugin has
        problem = f"it does not make a command ({type(error).__name__}: {error})"
        COMMANDS.warn_of(name, problem)
        raise ParameterError(f"The command {name!r} cannot be used: {problem}. Choose another one.") from error
    command.name = name
    return command


def _verb(name: str, function: Any) -> Any:
    module = import_module(function.__module__)
    single = typer.Typer(add_completion=False)
    single.command(name, cls=Verb, context_settings=getattr(module, "SETTINGS", None))(spoken(function))
    command: Any = get_command(single)
    command.other_names = getattr(module, "OTHER_NAMES", {})
    for parameter, names in getattr(module, "CHOICES", {}).items():
        (param,) = (param for param in command.params if param.name == parameter)
        param.metavar = f"[{'|'.join(names())}]"
    return command


def _help_in_source(verb: str) -> str | None:
    name = _module(verb)
    tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8"))
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    return ast.get_docstring(function)


@contextmanager
def _warnings_on_one_line() -> Iterator[None]:
    """Print each warning of this package on one line; Python prints all other warnings as usual."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", SurgeryWarning)
        show_as_usual = warnings.showwarning
        shown: set[str] = set()

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, PluginWarning):
                if str(message) in shown:  # a plugin that is broken is looked up again and again
                    return
                shown.add(str(message))
            if issubclass(category, SurgeryWarning):
                console = Console(stderr=True, soft_wrap=True)
                console.print(f"[bold yellow]Warning:[/] {escape(str(message))}", highlight=False)
            else:
                show_as_usual(message, category, *where, **more)

        warnings.showwarning = show
        yield


app = typer.Typer(
    cls=Verbs,
    help=HELP,
    epilog=ENDING,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _global_options(
    as_json: Json = False, quiet: Quiet = False, debug: Debug = False, version: Version = False
) -> None:
    """Declare the options that may stand before the verb; `Verb` reads them, and version has a callback."""
