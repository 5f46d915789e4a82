"""How records name what a user named."""

from pathlib import Path
from typing import Any

__all__ = ["plain_name", "plain_options"]


def plain_name(source: str) -> str:
    """Return ``source``, or the last part of it where it is a path: a record names no folder of its machine.

    A kind before a colon and a label behind a number sign stay: ``hf:/models/judge#toxic`` is ``hf:judge#toxic``.
    """
    kind, colon, rest = source.partition(":")
    if colon and rest and not Path(source).exists():
        return f"{kind}:{plain_name(rest)}"
    path, mark, label = source.partition("#")
    return Path(path).name + mark + label if Path(path).exists() else source


def plain_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options with every text, alone or in a list, as `plain_name` has it."""
    return {
        name: [plain_name(v) if isinstance(v, str) else v for v in value]
        if isinstance(value, list)
        else (plain_name(value) if isinstance(value, str) else value)
        for name, value in options.items()
    }
