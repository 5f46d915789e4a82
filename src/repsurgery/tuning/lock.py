"""The lock of a search: everything that its result follows from, so that it can be made again without searching."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repsurgery.checkpoint import digest, write_text
from repsurgery.errors import DataError, FileFormatError, ParameterError
from repsurgery.files import built_from
from repsurgery.tuning.candidates import CANDIDATES, Candidate, space
from repsurgery.tuning.plan import Plan

__all__ = ["SCHEMA", "Lock", "candidate_of", "lock_path", "plan_of", "read_lock", "require_same", "write_lock"]

SCHEMA = 1
Lock = Mapping[str, Any]
"""What a steering follows from, by the names in `LOCKED`."""
LOCKED: dict[str, Any] = {
    **{"kind": str, "schema": int, "version": str, "model": str, "fingerprint": str, "source": str, "target": str},
    **{"texts": (dict, type(None)), "prompts": dict, "scorer": (str, type(None)), "judge": str, "labeller": str},
    **{"measure": str, "plan": dict, "sites": list, "seed": int, "kl": float, "wikitext": (float, type(None))},
    **{"candidate": dict, "strength": float, "digest": str, "outcome": dict},
}
"""The type of each field."""


def lock_path(out: str | os.PathLike[str]) -> Path:
    """Return where the lock of the steering file ``out`` is written: kinder.safetensors has kinder.lock.json."""
    path = Path(out)
    return path.with_name(f"{path.name.removesuffix('.safetensors')}.lock.json")


def write_lock(lock: Lock, path: str | os.PathLike[str]) -> Path:
    """Write a lock; paths of texts and prompts are stored relative to its folder."""
    folder = Path(path).absolute().parent
    stored = {**lock, "texts": _relative(lock["texts"], folder), "prompts": _relative(lock["prompts"], folder)}
    return write_text(Path(path), json.dumps({**stored, "seal": _seal(stored)}, indent=1, sort_keys=True) + "\n")


def read_lock(path: str | os.PathLike[str]) -> Lock:
    """Return the lock in a file, with absolute paths.

    Raises
    ------
    ParameterError
        There is no such file.
    FileFormatError
        It is not a lock, or one of another version of the format.
    """
    file = Path(path)
    try:
        lock = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ParameterError(
            f"There is no lock file {path}. `repsurgery tune` writes one beside its output."
        ) from error
    except ValueError as error:
        raise FileFormatError(f"{path} is not a lock file: it is not JSON ({error}).") from error
    if not isinstance(lock, dict) or lock.get("kind") != "tune-lock":
        raise FileFormatError(f"{path} is not a lock file of `repsurgery tune`.")
    if lock.get("schema") != SCHEMA:
        raise FileFormatError(
            f"{path} has the lock format {lock.get('schema')!r}; this repsurgery reads {SCHEMA}. Use the version "
            f"{lock.get('version')} that wrote it."
        )
    wrong = [name for name, kind in LOCKED.items() if not isinstance(lock.get(name), kind)]
    wrong += [name for name in ("texts", "prompts") if name not in wrong and not _is_place(lock.get(name))]
    if wrong:
        raise FileFormatError(f"{path} is damaged: {', '.join(wrong)} is missing or has another type.")
    if lock.pop("seal", None) != _seal(lock):
        raise FileFormatError(f"{path} was changed after it was written. Use the original, or run tune again.")
    folder = file.absolute().parent
    return {**lock, "texts": _absolute(lock["texts"], folder), "prompts": _absolute(lock["prompts"], folder)}


def candidate_of(lock: Lock) -> Candidate:
    """Return the candidate that a lock names."""
    with built_from("the candidate of the lock"):
        candidate = Candidate(**lock["candidate"])
        choices = {"scope": space()["scope"]} if candidate.text else space()
        unknown = [name for name, values in choices.items() if getattr(candidate, name) not in values]
        if unknown:
            raise ValueError(f"{unknown[0]} is {getattr(candidate, unknown[0])!r}")
    if candidate.text and candidate.method not in CANDIDATES:
        raise ParameterError(
            f"The lock names the candidate {candidate.text!r} of the plug-in {candidate.method!r} "
            "(repsurgery.candidates), which is not installed. Install its package, or run tune without --lock."
        )
    return candidate


def plan_of(lock: Lock) -> Plan:
    """Return the sizes that a lock states."""
    with built_from("the sizes of the lock"):
        sizes: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in lock["plan"].items()}
        return Plan(**sizes)


def require_same(name: str, found: str, wanted: str) -> None:
    """Raise an error if an input is not the one of the lock."""
    if found != wanted:
        raise DataError(
            f"The {name} differ from those of the lock (digest {found[:12]} instead of {wanted[:12]}). Give the "
            f"original {name}, or run tune without --lock."
        )


def _is_place(place: dict[str, Any] | None) -> bool:
    """Return whether this is what `find_texts` or `find_prompts` says of the place of its data."""
    if place is None:
        return True
    named = all(isinstance(place.get(name, 0), str | None) for name in ("path", "name"))
    return named and isinstance(place.get("digest"), str)


def _seal(lock: Lock) -> str:
    """Return the digest of everything in a lock but the paths, which change where its folder is moved."""
    places = {name: {**lock[name], "path": None} for name in ("texts", "prompts") if lock[name] is not None}
    return digest({**{name: value for name, value in lock.items() if name != "seal"}, **places})


def _relative(place: dict[str, Any] | None, folder: Path) -> dict[str, Any] | None:
    if place is None or place.get("path") is None:
        return place
    return {**place, "path": Path(os.path.relpath(Path(place["path"]).absolute(), folder)).as_posix()}


def _absolute(place: dict[str, Any] | None, folder: Path) -> dict[str, Any] | None:
    if place is None or place.get("path") is None:
        return place
    return {**place, "path": str(folder / place["path"])}
