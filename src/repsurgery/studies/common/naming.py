"""Names in records, without folders of the machine."""

from pathlib import Path
from typing import Any

__all__ = ["plain_name", "plain_options"]


def plain_name(source: str) -> str:
    """Return ``source``, or its last part if it is an existing path, so that no record contains a folder name.

    A kind before a colon and a label after a number sign stay: ``hf:/models/judge#toxic`` becomes ``hf:judge#toxic``.
    """
    kind, colon, rest = source.partition(":")
    if colon and rest and not Path(source).exists():
        return f"{kind}:{plain_name(rest)}"
    path, mark, label = source.partition("#")
    return Path(path).name + mark + label if Path(path).exists() else source


def plain_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options with `plain_name` applied to every text, alone or in a list."""
    return {name: _plain_value(value) for name, value in options.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    return plain_name(value) if isinstance(value, str) else value
