"""The terminal: Typer and Rich, imported here so that one message names the missing extra, and text made safe."""

import unicodedata

from repsurgery.errors import MissingExtraError

try:
    import typer
    from rich.console import Console
    from rich.markup import escape as _escape_markup
    from rich.table import Table
except ImportError as error:
    raise MissingExtraError("The command line needs Rich and Typer: pip install 'repsurgery[cli]'") from error

__all__ = ["Console", "Table", "escape", "plain", "print_sentence", "typer"]

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that a terminal interprets or hides: control and format characters, lone surrogates, and
separators of lines and paragraphs."""


def plain(text: str) -> str:
    """Return ``text`` with control and format characters as visible escapes, so that they do not act on a terminal.

    Newlines and tabs stay.

    Guarantees
    ----------
    No escape sequence in a label, path or text reaches the terminal (test_no_command_lets_a_label_steer_the_terminal).
    """
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) not in _INVISIBLE else c.encode("unicode_escape").decode()
        for c in text
    )


def escape(text: str) -> str:
    """Return ``text`` so that Rich prints it literally: neither markup nor control characters have an effect."""
    return _escape_markup(plain(text))


def print_sentence(text: str, console: Console, *, style: str | None = None) -> None:
    """Print ``text`` literally: wrapped at words on a terminal, and on one line in a file or a pipe."""
    console.print(escape(text), style=style, highlight=False, soft_wrap=not console.is_terminal)
