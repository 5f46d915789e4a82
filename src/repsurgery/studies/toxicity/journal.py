"""`Journal`: results that arrive one by one, each on disk before the next; a kill loses none that was noted."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Journal", "journal_of"]


class Journal(Mapping[str, Any]):
    """A mapping of key to plain value in an append-only file, one digested line each.

    A line that a kill or a full disk cut short does not count, and is closed off before the next is written. A key
    noted twice holds what came last.

    Parameters
    ----------
    path : path
        Made at the first note.

    Guarantees
    ----------
    Whatever the moment of a kill, every noted line is read back and a torn one is not
    (test_a_torn_line_costs_that_line_alone).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held = dict(_lines(path))

    def __getitem__(self, key: str) -> Any:
        return self._held[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def note(self, entries: Mapping[str, Any]) -> None:
        """Write entries, and return when they are on disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(_line(key, value) for key, value in entries.items())
        with self.path.open("a+b") as stream:
            if stream.tell() and not _ends_a_line(stream):
                text = "\n" + text
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())
        self._held.update(entries)


def journal_of(folder: Path, name: str, identity: Mapping[str, Any]) -> Journal:
    """Return the journal under ``folder`` of exactly this job: its file is named by a digest of ``identity``."""
    text = json.dumps(identity, sort_keys=True)
    return Journal(folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsonl")


def _line(key: str, value: Any) -> str:
    body = json.dumps([key, value])
    return f"{_digest(body)} {body}\n"


def _lines(path: Path) -> Iterable[tuple[str, Any]]:
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        digest, _, body = line.decode(errors="replace").partition(" ")
        if body and digest == _digest(body):
            key, value = json.loads(body)
            yield key, value


def _ends_a_line(stream: Any) -> bool:
    stream.seek(-1, os.SEEK_END)
    ended: bool = stream.read(1) == b"\n"
    stream.seek(0, os.SEEK_END)
    return ended


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]
