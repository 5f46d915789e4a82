"""Records as JSON files: written once, never altered, and refused when they were."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from repsurgery.checkpoint import digest as json_digest
from repsurgery.checkpoint import write_text
from repsurgery.errors import RecordError
from repsurgery.studies.fairness.record import StudyRecord
from repsurgery.studies.toxicity.record import ToxicityRecord

__all__ = ["SCHEMA", "Record", "read_record", "read_records", "write_record"]

Record: TypeAlias = StudyRecord | ToxicityRecord

_CIRCUMSTANCES = ("created", "seconds", "environment")
SCHEMA = 1
"""Number of the record's layout; a reader of another number refuses the file."""


def write_record(record: Record, folder: str | os.PathLike[str]) -> Path:
    """Write ``record`` into ``folder`` and return the path.

    The name ends in a digest of what was asked and found, without date, time taken and machine: the same study run
    again finds its record there and leaves it as it is.
    """
    body = json.loads(json.dumps(record.to_dict(), allow_nan=False))
    digest = _digest(body)
    found = _digest({name: value for name, value in body.items() if name not in _CIRCUMSTANCES})
    reader = record.encoder if isinstance(record, StudyRecord) else record.model
    words = (record.experiment, record.data["name"], reader["name"], record.spec["preset"])
    path = Path(folder) / f"{'-'.join(_plain(str(word)) for word in words)}-{found[:12]}.json"
    if path.exists():
        read_record(path)  # an altered file is an error, not a record
        return path
    text = json.dumps({"schema": SCHEMA, "digest": digest, "record": body}, indent=1, ensure_ascii=False) + "\n"
    try:
        return write_text(path, text)
    except OSError as error:
        raise RecordError(
            f"The record could not be written to {path.parent} ({error.strerror}). Make room or name another folder, "
            "and run the same command again: what was computed is kept."
        ) from error


def read_record(path: str | os.PathLike[str]) -> Record:
    """Read a record back, checking layout and digest first."""
    file = Path(path)
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecordError(f"There is no record {file}. Run the study first, or name another file.") from error
    except (ValueError, OSError) as error:
        raise RecordError(f"{file} is no record ({error}). Run the study again.") from error
    if not isinstance(held, dict) or not {"schema", "digest", "record"} <= held.keys():
        raise RecordError(f"{file} is no record of a study: schema, digest and record are not all there.")
    if held["schema"] != SCHEMA:
        raise RecordError(
            f"{file} has layout {held['schema']!r}; this repsurgery reads {SCHEMA}. "
            "Open it with the version that wrote it, or run the study again."
        )
    if _digest(held["record"]) != held["digest"]:
        raise RecordError(f"{file} was altered after it was written: its digest does not match. Run the study again.")
    try:
        kind = ToxicityRecord if held["record"]["experiment"] == "toxicity" else StudyRecord
        return kind.from_dict(held["record"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RecordError(f"{file} lacks or exceeds what a record holds ({error}). Run the study again.") from error


def read_records(paths: Iterable[str | os.PathLike[str]]) -> list[Record]:
    """Read every record among ``paths``; a folder stands for the ``.json`` files in it, by name."""
    files = [file for path in map(Path, paths) for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    if not files:
        raise RecordError("There are no records to read. Run `repsurgery reproduce` first, or name its files.")
    return [read_record(file) for file in files]


def _digest(body: Any) -> str:
    return json_digest(body, escape=False)


def _plain(word: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in Path(word).name.lower())
