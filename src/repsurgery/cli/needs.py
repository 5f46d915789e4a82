"""Typer and Rich, or a word on how to get them; commands import both from here."""

import unicodedata

from repsurgery.errors import MissingExtraError

try:
    import typer
    from rich.console import Console
    from rich.markup import escape as _escape_markup
    from rich.progress import Progress
    from rich.table import Table
except ImportError as error:
    raise MissingExtraError("The command line needs Rich and Typer: pip install 'repsurgery[cli]'") from error

__all__ = ["Console", "Progress", "Table", "escape", "plain", "typer"]

_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that make a terminal show text in another order than it is written in."""


def plain(text: str) -> str:
    """Return ``text`` with control characters spelled out, so that no terminal obeys them; lines and tabs stay.

    Guarantees
    ----------
    No escape sequence in a label, path or text reaches the terminal (test_no_command_lets_a_label_steer_the_terminal).
    """
    return "".join(c if c in "\n\t" or not _controls(c) else c.encode("unicode_escape").decode() for c in text)


def escape(text: str) -> str:
    """Return ``text`` as Rich prints it literally: neither markup nor control characters have an effect."""
    return _escape_markup(plain(text))


def _controls(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs") or character in _DIRECTIONS
