"""Options of a study: checked against their annotations, read from TOML and written to it."""

import json
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from repsurgery.errors import ParameterError

__all__ = ["chosen", "fits", "options_toml", "read_options", "require_least", "require_types"]


def require_types(spec: Any) -> None:
    """Raise where an option of the dataclass ``spec`` is not of its annotated type."""
    for name, hint in get_type_hints(type(spec)).items():
        value = getattr(spec, name)
        if not fits(value, hint):
            raise ParameterError(f"{name} is {value!r}; it must be {_in_words(hint)}.")


def require_least(spec: Any, least: Mapping[float, tuple[str, ...]]) -> None:
    """Raise where an option, or one of several values of it, lies below its bound."""
    for bound, names in least.items():
        for name in names:
            values = getattr(spec, name)
            if min(values if isinstance(values, tuple) else (values,), default=bound) < bound:
                raise ParameterError(f"{name} is {values}; it must be at least {bound}.")


def chosen(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` for the fields of the dataclass ``kind``, lists as tuples; an unknown name is an error."""
    known = [f.name for f in fields(kind)]
    unknown = [name for name in values if name not in known]
    if unknown:
        raise ParameterError(f"A study has no option {unknown[0]!r}; it has {', '.join(known)}.")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def read_options(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the options of a study from a TOML file, which must name the experiment."""
    try:
        with Path(path).open("rb") as stream:
            held = tomllib.load(stream)
    except FileNotFoundError as error:
        raise ParameterError(f"There is no file {path}. Write one with experiment, preset and options.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path} is no TOML ({error}). Correct it.") from error
    except OSError as error:
        raise ParameterError(f"{path} cannot be read ({error.strerror}). Name a TOML file.") from error
    if "experiment" not in held:
        raise ParameterError(
            f"{path} does not say which experiment: write experiment = 'bios', 'dialect' or 'toxicity'."
        )
    return held


def options_toml(options: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Return the TOML of a study: experiment, preset, and what differs from the ``usual`` options."""
    named = {name: options[name] for name in ("experiment", "preset")}
    lines = {**named, **{name: value for name, value in options.items() if value != usual[name]}}
    # JSON writes strings, numbers, booleans and flat lists as TOML does
    return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in lines.items())


def fits(value: Any, hint: Any) -> bool:
    """Return whether ``value`` is what the annotation ``hint`` asks for."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(fits(item, get_args(hint)[0]) for item in value)
    if hint is float:
        return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, hint) and not (hint is int and isinstance(value, bool))


def _in_words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if get_origin(hint) is tuple:
        return f"a list of {_in_words(get_args(hint)[0])}"
    return str(hint.__name__)
