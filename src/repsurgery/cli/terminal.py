"""The terminal: Typer and Rich, imported here so that one message names the missing extra, and text made safe."""

from repsurgery.cards import plain
from repsurgery.errors import MissingExtraError

try:
    import typer
    from rich.console import Console
    from rich.markup import escape as _escape_markup
    from rich.table import Table
except ImportError as error:
    raise MissingExtraError("The command line needs Rich and Typer: pip install 'repsurgery[cli]'") from error

__all__ = ["Console", "Table", "escape", "plain", "print_sentence", "typer"]


def escape(text: str) -> str:
    """Return ``text`` so that Rich prints it literally: neither markup nor control characters have an effect."""
    return _escape_markup(plain(text))


def print_sentence(text: str, console: Console, *, style: str | None = None, wrap: bool = True) -> None:
    """Print ``text`` literally: wrapped at words on a terminal, and on one line in a file or a pipe.

    A word that is longer than a line, such as a path, is not broken, so that it can be copied.
    """
    whole = not (wrap and console.is_terminal) or any(len(word) >= console.width for word in text.split())
    console.print(escape(text), style=style, highlight=False, soft_wrap=whole)
