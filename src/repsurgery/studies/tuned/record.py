"""The record of a tuned steering: reading it, and checking that a report can be made from it."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repsurgery.certificates.outcome import MEASURES
from repsurgery.errors import RecordError

__all__ = ["KIND", "SCHEMA", "TUNE_FILES", "check_tune_record", "read_tune_record"]

KIND = "tune"
SCHEMA = 1
"""Version of the file layout; files of another version are refused."""
TUNE_FILES = ("index.html", "front.svg", "record.json")
"""The files in a report's folder; ``record.json`` is written by the command."""

_TEXTS = ("model", "source", "target", "judge.name")
_NUMBERS = ("base", "steered", "effect.value", "price.kl", "budget.kl", "confirmation_prompts")
_LISTS = ("candidates", "compared", "pairs", "others", "certificate", "notes")
_PARTS = ("budget", "judge", "effect", "price")


def read_tune_record(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the ``record.json`` of a tuned steering.

    Raises
    ------
    RecordError
        There is no such file, it is not JSON, or `check_tune_record` refuses it.
    """
    file = Path(path)
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecordError(f"There is no record {file}. Run `repsurgery tune` first, or name another file.") from error
    except (ValueError, OSError) as error:
        raise RecordError(f"{file} is not a record ({error}). Run `repsurgery tune` again.") from error
    check_tune_record(record, name=str(file))
    return dict(record)


def check_tune_record(record: Any, *, name: str = "The record") -> None:
    """Raise a `RecordError` unless ``record`` is of this kind and layout and contains what every report shows.

    Guarantees
    ----------
    Every missing or unsuitable field is named (test_every_unsuitable_field_of_a_record_is_named).
    """
    if not isinstance(record, Mapping) or record.get("kind") != KIND:
        kind = record.get("kind") if isinstance(record, Mapping) else None
        raise RecordError(
            f"{name} is not a record of a tuned steering: its kind is {kind!r} and must be {KIND!r}. "
            "Name the record.json that `repsurgery tune` wrote."
        )
    if record.get("schema") != SCHEMA:
        raise RecordError(
            f"{name} has layout {record.get('schema')!r}; this version of repsurgery reads layout {SCHEMA}. "
            "Open it with the version that wrote it, or run `repsurgery tune` again."
        )
    faults = _faults(record)
    if faults:
        raise RecordError(f"{name} does not fit a record of a tuned steering: {' '.join(faults)} Tune again.")


def _faults(record: Mapping[str, Any]) -> list[str]:
    faults = [f"{key} must be an object." for key in _PARTS if not isinstance(record.get(key), Mapping)]
    if faults:
        return faults
    faults += [f"{key} must be a text." for key in _TEXTS if not isinstance(_field(record, key), str)]
    faults += [f"{key} must be a finite number." for key in _NUMBERS if not _is_number(_field(record, key))]
    faults += [f"{key} must be a list." for key in _LISTS if not isinstance(record.get(key, []), list | tuple)]
    if record.get("measure") not in MEASURES:
        faults.append(f"measure is {record.get('measure')!r} and must be one of {', '.join(MEASURES)}.")
    return faults


def _field(record: Mapping[str, Any], key: str) -> Any:
    value: Any = record
    for part in key.split("."):
        value = value.get(part)
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
