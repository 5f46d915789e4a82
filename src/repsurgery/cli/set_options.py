"""The flag ``--set name=value``: any option of a study."""

import tomllib
from typing import Any, get_type_hints

from repsurgery.errors import ParameterError

__all__ = ["set_options"]


def set_options(pairs: list[str], kind: type) -> dict[str, Any]:
    """Return the options in ``pairs`` of the form name=value, where the class ``kind`` knows which ones are strings."""
    options = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise ParameterError(f"--set got {pair!r}; it needs name=value, such as --set seed=1.")
        options[name.strip()] = _value(kind, name.strip(), value.strip())
    return options


def _value(kind: type, name: str, text: str) -> Any:
    # the value is TOML; a bare word is a string, and so is a number if the option is a string
    if text[:1] not in ('"', "'") and get_type_hints(kind).get(name) is str:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
