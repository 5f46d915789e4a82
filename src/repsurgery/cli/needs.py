"""Typer and Rich, or a word on how to get them; commands import both from here."""

from repsurgery.errors import MissingExtraError

try:
    import typer
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress
    from rich.table import Table
except ImportError as error:
    raise MissingExtraError("The command line needs Rich and Typer: pip install 'repsurgery[cli]'") from error

__all__ = ["Console", "Progress", "Table", "escape", "typer"]
