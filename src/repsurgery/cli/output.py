"""What a command says: its result on stdout, as text or as one JSON document, and everything else beside it."""

import dataclasses
import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repsurgery.cli.show import show_table
from repsurgery.cli.terminal import Console, print_sentence, typer
from repsurgery.progress import silent_progress

if TYPE_CHECKING:
    from repsurgery.studies.common.report.tables import Table

__all__ = [
    "Form",
    "beside_the_result",
    "current_form",
    "result_console",
    "say",
    "say_table",
    "speaking",
    "step",
    "write_document",
    "write_error",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """How a command speaks.

    Attributes
    ----------
    json : bool
        The result is one JSON document, which the command returns; what it prints for people is left out.
    quiet : bool
        No progress and no steps; the result, warnings and errors stay.
    """

    json: bool = False
    quiet: bool = False

    @property
    def wants_document(self) -> bool:
        """Whether a document is still to be written; there is one at most."""
        return self.json and not _WRITTEN.get()


_FORM: ContextVar[Form] = ContextVar("form", default=Form())  # noqa: B039 - a Form is frozen
_WRITTEN: ContextVar[bool] = ContextVar("written", default=False)


@contextmanager
def speaking(form: Form) -> Iterator[None]:
    """Within the block, a command speaks in this form, and what it says of its progress follows."""
    tokens = _FORM.set(form), _WRITTEN.set(False)
    try:
        with silent_progress(silent=form.quiet):
            yield
    finally:
        _FORM.reset(tokens[0])
        _WRITTEN.reset(tokens[1])


def current_form() -> Form:
    """Return the form in which the running command speaks."""
    return _FORM.get()


def result_console() -> Console:
    """Return the console of the result for people, on which nothing is printed with --json."""
    return Console(quiet=_FORM.get().json)


def say(text: str, *, style: str | None = None, wrap: bool = True) -> None:
    """Print a sentence of the result; code is not wrapped."""
    print_sentence(text, result_console(), style=style, wrap=wrap)


def say_table(table: "Table") -> None:
    """Print a table of the result."""
    show_table(table, result_console())


def step(text: str) -> None:
    """Say what the command does now: not with --quiet, and beside the document with --json."""
    form = _FORM.get()
    if not form.quiet:
        print_sentence(text, Console(stderr=form.json), style="bold")


@contextmanager
def beside_the_result() -> Iterator[None]:
    """Within the block, what libraries print goes to stderr if the result is a document."""
    with redirect_stdout(sys.stderr) if _FORM.get().json else nullcontext():
        yield


def write_document(result: Any) -> None:
    """Write the result of a command to stdout as JSON."""
    typer.echo(json.dumps(_plain(result), indent=2))
    _WRITTEN.set(True)


def write_error(kind: str, message: str, exit_code: int) -> None:
    """Write the document of a command that failed."""
    write_document({"error": {"kind": kind, "message": message, "exit_code": exit_code}})


def _plain(value: Any) -> Any:
    """Return ``value`` in types of JSON, which knows neither NaN nor infinity: they become null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value
