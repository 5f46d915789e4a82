"""How records name what a user named."""

from pathlib import Path

__all__ = ["plain_name"]


def plain_name(source: str) -> str:
    """Return ``source``, or the last part of it where it is a path: a record names no folder of its machine."""
    return Path(source).name if Path(source).exists() else source
