"""Notes of finished work: a journal on disk, or a mapping in memory where nothing can be stored."""

from pathlib import Path
from typing import Any

from repsurgery.checkpoint import Journal

__all__ = ["Notes", "notes_in"]


class _InMemory(dict[str, Any]):
    """Notes that are lost when the process ends."""

    note = dict.update


Notes = Journal | _InMemory
"""A mapping with a method ``note`` that adds entries."""


def notes_in(path: Path | None) -> Notes:
    """Return the journal at ``path``, with what earlier runs noted; None: notes in memory."""
    return _InMemory() if path is None else Journal(path)
