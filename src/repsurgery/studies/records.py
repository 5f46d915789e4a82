"""Records as JSON files: written once, never changed afterwards, and refused if they were changed."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeAlias

from repsurgery.checkpoint import digest as json_digest
from repsurgery.checkpoint import write_text
from repsurgery.errors import RecordError
from repsurgery.studies.common.checked import read_checked

if TYPE_CHECKING:
    from repsurgery.studies.fairness.record import StudyRecord
    from repsurgery.studies.toxicity.record import ToxicityRecord

__all__ = ["KINDS", "SCHEMA", "Record", "read_record", "read_records", "write_record"]

Record: TypeAlias = "StudyRecord | ToxicityRecord"

KINDS: Mapping[str, str] = {
    "bios": "repsurgery.studies.fairness.record:StudyRecord",
    "dialect": "repsurgery.studies.fairness.record:StudyRecord",
    "toxicity": "repsurgery.studies.toxicity.record:ToxicityRecord",
}
"""The class of each experiment's record; it is imported when such a record is read."""

SCHEMA = 1
"""Version of the file layout; files of another version are refused."""

_CIRCUMSTANCES = ("created", "seconds", "environment")
_MEASURED_HERE = ("cost_per_token", "training_seconds", "peak_bytes", "peak_bytes_base")
"""Fields at any depth that depend on the machine and its load."""


def write_record(record: Record, folder: str | os.PathLike[str]) -> Path:
    """Write ``record`` into ``folder`` and return the path.

    The file name ends in a digest of the specification and the results, without date, durations, memory and
    environment. If the same study was run before and gave the same results, its record is left unchanged.

    Guarantees
    ----------
    A record that is read and written again is the same, except that fields which older files lack are null
    (test_a_committed_record_is_written_again_as_it_stands).
    """
    body = record.to_dict()
    results = _digest(_lasting({name: value for name, value in body.items() if name not in _CIRCUMSTANCES}))
    words = (record.experiment, record.data["name"], record.model_name, record.spec["preset"])
    path = Path(folder) / f"{'-'.join(_file_word(str(word)) for word in words)}-{results[:12]}.json"
    if path.exists():
        read_record(path)  # raises if the file was altered
        return path
    text = json.dumps({"schema": SCHEMA, "digest": _digest(body), "record": body}, indent=1, ensure_ascii=False) + "\n"
    try:
        return write_text(path, text)
    except OSError as error:
        raise RecordError(
            f"The record could not be written to {path.parent} ({error.strerror}). Make room or name another folder, "
            "and run the same command again: finished work is kept."
        ) from error


def read_record(path: str | os.PathLike[str]) -> Record:
    """Read a record, checking layout, digest and contents."""
    file = Path(path)
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecordError(f"There is no record {file}. Run the study first, or name another file.") from error
    except (ValueError, OSError) as error:
        raise RecordError(f"{file} is not a record ({error}). Run the study again.") from error
    if not isinstance(stored, dict) or not {"schema", "digest", "record"} <= stored.keys():
        raise RecordError(f"{file} is not a record of a study: it needs schema, digest and record. Name another file.")
    if stored["schema"] != SCHEMA:
        raise RecordError(
            f"{file} has layout {stored['schema']!r}; this version of repsurgery reads layout {SCHEMA}. "
            "Open it with the version that wrote it, or run the study again."
        )
    body = stored["record"]
    if _digest(body) != stored["digest"]:
        raise RecordError(f"{file} was altered after it was written: its digest does not match. Run the study again.")
    experiment = body.get("experiment") if isinstance(body, dict) else None
    kind = KINDS.get(str(experiment))
    if kind is None:
        raise RecordError(
            f"{file} does not fit any record: its experiment is {experiment!r}; this version of repsurgery reads "
            f"{', '.join(KINDS)}. Open it with the version that wrote it."
        )
    try:
        record: Record = read_checked(resolve_name(kind), body, RecordError)
    except RecordError as error:
        raise RecordError(f"{file} does not fit a record of {experiment!r}: {error} Run the study again.") from error
    return record


def read_records(paths: Iterable[str | os.PathLike[str]]) -> list[Record]:
    """Read the records ``paths``; a folder stands for its ``.json`` files, sorted by name."""
    files = [file for path in map(Path, paths) for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    if not files:
        raise RecordError("There are no records to read. Run `repsurgery reproduce` first, or name its files.")
    return [read_record(file) for file in files]


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(inner) for name, inner in value.items() if name not in _MEASURED_HERE}
    return list(map(_lasting, value)) if isinstance(value, list) else value


def _digest(body: Any) -> str:
    return json_digest(body, escape=False)


def _file_word(word: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in Path(word).name.lower())
