"""`Verb`: one command with the options that all commands share, and errors that name its flags."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from repsurgery.cli.options import Debug, Json, Quiet
from repsurgery.cli.output import Form, speaking, write_document
from repsurgery.cli.terminal import Console
from repsurgery.cli.usage import UsageError, explain_value, flags_of, in_flags, refuse_repeats, suggest
from repsurgery.errors import SurgeryError

# `options` has already reported a missing Typer or Rich
from typer.core import TyperCommand  # isort: skip

__all__ = ["FORM", "RESUMABLE", "RESUMES", "Verb", "spoken"]

RESUMABLE = ("demo", "moments", "reproduce", "rivals", "train-scorer", "tune")
"""Verbs that store finished work and continue from it when they are run again; `fit` does so with --on-policy."""
RESUMES = "repsurgery.resumes"
"""Where a verb notes, in what its context shares with the group, whether it resumes."""
FORM = "repsurgery.form"
"""Where it notes how it speaks."""

NARROW = 80
"""Columns below which the panels of Typer would cut long flags off."""

_SHARED = {"as_json": Json, "quiet": Quiet, "debug": Debug}


def spoken(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` with the options --json, --quiet and --debug, which `Verb` reads."""
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=option)
        for name, option in _SHARED.items()
    ]
    own = inspect.signature(function, eval_str=True)

    @functools.wraps(function)
    def run(**arguments: Any) -> Any:
        return function(**{name: value for name, value in arguments.items() if name not in _SHARED})

    parameters = [*own.parameters.values(), *shared]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


class Verb(TyperCommand):
    """One verb. What its function returns is the document that --json prints.

    Guarantees
    ----------
    Errors name flags: "batch_rows is 0" becomes "--batch-rows is 0" (test_errors_name_flags).
    An option for one value is refused if it is given twice (test_one_value_is_not_given_twice).
    """

    other_names: dict[str, str] = {}  # noqa: RUF012 - set once, where the verb is made

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the options of the verb."""
        words = list(args)  # parsing consumes them
        try:
            return super().make_context(info_name, args, parent, **extra)
        except UsageError as error:
            if hasattr(error, "possibilities"):  # of an unknown option; Typer's own suggestions go by letters alone
                flags = [flag for param in self.params for flag in param.opts]
                error.message, error.possibilities = suggest(error.option_name, flags, words), None
            else:
                explain_value(error, words)
                error.message = in_flags(error.message, flags_of(self, self.other_names))
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help: in panels, or as plain lines where panels would cut flags off."""
        panels = self.rich_markup_mode
        self.rich_markup_mode = panels if Console().width >= NARROW else None
        try:
            super().format_help(ctx, formatter)
        finally:
            self.rich_markup_mode = panels

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse what was given twice, then read all."""
        refuse_repeats(self, ctx, args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb, and print the document of its result if JSON was asked for."""
        ctx.meta[RESUMES] = self.name in RESUMABLE or ctx.params.get("on_policy", False)
        before = ctx.parent.params if ctx.parent else {}
        asked = {name: ctx.params[name] or before.get(name, False) for name in _SHARED}
        if ctx.parent:
            ctx.parent.params["debug"] = asked["debug"]
        form = ctx.meta[FORM] = Form(json=asked["as_json"], quiet=asked["quiet"])
        with speaking(form):
            try:
                result = super().invoke(ctx)
                if form.wants_document:
                    write_document(result)
                return result
            except SurgeryError as error:
                error.args = (in_flags(str(error), flags_of(self, self.other_names)),)
                raise
            finally:
                ctx.meta[FORM] = Form(json=form.wants_document, quiet=form.quiet)  # of what may be said of an error
