"""Options of a study in TOML files."""

import json
import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from repsurgery.errors import ParameterError

__all__ = ["options_toml", "read_options"]


def read_options(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the options of a study from a TOML file, which must name the experiment."""
    try:
        with Path(path).open("rb") as stream:
            options = tomllib.load(stream)
    except FileNotFoundError as error:
        raise ParameterError(f"There is no file {path}. Write one with experiment, preset and options.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path} is not valid TOML ({error}). Correct it.") from error
    except OSError as error:
        raise ParameterError(f"{path} cannot be read ({error.strerror}). Name a TOML file.") from error
    if "experiment" not in options:
        raise ParameterError(
            f"{path} does not say which experiment to run: write experiment = 'bios', 'dialect' or 'toxicity'."
        )
    return options


def options_toml(options: Mapping[str, Any], defaults: Mapping[str, Any], stated: Collection[str] | None) -> str:
    """Return the TOML of a study: experiment, preset, and the options that were ``stated`` or are not ``defaults``."""
    named = {name: options[name] for name in ("experiment", "preset")}
    given = {name: value for name, value in options.items() if value != defaults[name] or name in (stated or ())}
    lines = {**named, **given}
    # strings, numbers, booleans and flat lists are written in the same way in JSON and in TOML
    return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in lines.items())
