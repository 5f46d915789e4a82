"""Checkpoints: what identifies a job, files that are written whole or not at all, and how interrupted work resumes.

Files are written by `atomic_file`, `atomic_folder` or `added_files`, except journals, whose lines carry a digest each.
Models, adapters and control vectors (`lm.fold`) are written into a draft by the libraries that define their formats.
Everything that is identified by JSON is identified by `digest`.
"""

import hashlib
import json
import os
import secrets
import shutil
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, Generic, TypeVar

from repsurgery.errors import CacheWarning, FileFormatError

__all__ = [
    "SAVE_SECONDS",
    "Checkpoint",
    "Journal",
    "added_files",
    "atomic_file",
    "atomic_folder",
    "canonical_json",
    "digest",
    "file_digest",
    "journal_of",
    "keyed_folder",
    "recall",
    "uninterrupted",
    "write_text",
]

SAVE_SECONDS = 30.0
"""Long jobs save their results at least this often. Ctrl-C saves at once; only a killed process loses this much."""
_DRAFT_FOLDER = ".building-"

Value = TypeVar("Value")


def canonical_json(value: Any, *, escape: bool = True) -> str:
    """Return ``value`` as JSON with sorted keys; ``escape`` writes characters outside ASCII as escape sequences."""
    return json.dumps(value, sort_keys=True, ensure_ascii=escape)


def digest(*values: Any, escape: bool = True) -> str:
    """Return the SHA-256 of ``values`` as canonical JSON, as 64 hexadecimal digits.

    The texts of the values follow one another; two numbers are separated, because only those would run together.

    Parameters
    ----------
    values : JSON-ready values
    escape : bool
        As in `canonical_json`. Records and data sets are digested without escapes, everything else with them.

    Guarantees
    ----------
    Other values have another digest (test_other_values_have_another_digest).
    """
    text = ""
    for one in (canonical_json(value, escape=escape) for value in values):
        text += f",{one}" if text[-1:].isdigit() and one[0].isdigit() else one
    # half of a broken emoji is valid in a Python string and has no strict UTF-8
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a stream whose bytes replace ``path`` when the block ends, and disappear when it fails.

    The bytes are on disk before the file takes its name. The file keeps the permissions of the one that it replaces; a
    new one has those of any new file.

    Guarantees
    ----------
    A failure leaves the old file and nothing else (test_a_failed_write_leaves_the_old_file_and_nothing_else).
    A private file stays private (test_a_replaced_file_keeps_its_permissions).
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} into. Create it first.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file in it.")
    draft = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    mode = path.stat().st_mode & 0o777 if path.exists() else None
    # the kernel applies the umask; reading it here would change it for the whole process for a moment
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(draft, flags, 0o666 if mode is None else mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            draft.chmod(mode)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> Path:
    """Write ``text`` as UTF-8 by `atomic_file`, create the folder if necessary, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as stream:
        stream.write(text.encode())
    return path


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces ``folder`` when the block ends, and disappears when it fails.

    Drafts that killed processes left behind are removed, so only one process at a time may use it on one folder.
    """
    for abandoned in folder.parent.glob(f"{_DRAFT_FOLDER}{folder.name}-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    outer = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{_DRAFT_FOLDER}{folder.name}-"))
    try:
        # mkdtemp makes its folder private to the user; the one inside has the permissions of any new folder
        draft = outer / "draft"
        draft.mkdir()
        yield draft
        if folder.exists():
            folder.rename(outer / "replaced")
        draft.rename(folder)
    finally:
        shutil.rmtree(outer, ignore_errors=True)


@contextmanager
def added_files(folder: Path) -> Iterator[Path]:
    """Yield an empty folder whose contents move into ``folder`` when the block ends, and disappear when it fails.

    The folder is created if necessary, and its other files stay.

    Guarantees
    ----------
    A failure leaves the folder as it was (test_added_files_appear_together_or_not_at_all).
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{_DRAFT_FOLDER}{folder.name}-") as draft:
        yield Path(draft)
        folder.mkdir(exist_ok=True)
        for file in Path(draft).iterdir():
            file.replace(folder / file.name)


def keyed_folder(root: Path, *identity: Any, prefix: str = "") -> Path:
    """Return the folder under ``root`` that belongs to exactly this ``identity``; create it if necessary."""
    folder = root / f"{prefix}{digest(*identity)[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def recall(path: Path, read: Callable[[Path], Value]) -> tuple[Value | None, Exception | None]:
    """Return what an earlier run wrote to ``path``, and what is wrong with it; both are None without such a file."""
    if not path.exists():
        return None, None
    try:
        return read(path), None
    except (FileFormatError, FileNotFoundError) as error:
        return None, error


@dataclass(frozen=True, slots=True)
class Checkpoint(Generic[Value]):
    """A folder of finished results of one job, each in a file of its own.

    Attributes
    ----------
    folder : path
        It exists; see `keyed_folder`.
    read : function of a path
        Returns the result in a file, or raises a `FileFormatError`.
    write : function of a path and a result
        Writes the file atomically.
    """

    folder: Path
    read: Callable[[Path], Value]
    write: Callable[[Path, Value], None]

    def get(self, name: str, compute: Callable[[], Value], *, label: str = "") -> Value:
        """Return the result in ``name``.safetensors; without a sound file, compute and write it first.

        A damaged file is computed again, with a `CacheWarning` that starts with ``label``.
        """
        path = self.folder / f"{name}.safetensors"
        value, damage = recall(path, self.read)
        if damage is not None:
            subject = label or f"The result {name!r}"
            warnings.warn(f"{subject} is computed again: {damage}", CacheWarning, stacklevel=3)
        if value is None:
            self.write(path, compute())
            # the first run, too, works with what is in the file, so a resumed run gets the same numbers
            value = self.read(path)
        return value


class Journal(Mapping[str, Any]):
    """A mapping of keys to JSON-ready values in an append-only file, one line with its digest per entry.

    A line that a kill or a full disk truncated is ignored, and ended before the next one is written. The last entry of
    a key counts.

    Parameters
    ----------
    path : path
        Created by the first `note`.

    Guarantees
    ----------
    Whatever the moment of a kill, every noted line is read back and a torn one is not
    (test_a_torn_line_costs_that_line_alone).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries = dict(_journal_entries(path))

    def __getitem__(self, key: str) -> Any:
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, entries: Mapping[str, Any]) -> None:
        """Append ``entries``, and return when they are on disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        bodies = (json.dumps([key, value]) for key, value in entries.items())
        text = "".join(f"{_line_digest(body)} {body}\n" for body in bodies)
        with self.path.open("a+b") as stream:
            if stream.tell():
                stream.seek(-1, os.SEEK_END)
                if stream.read(1) != b"\n":
                    text = f"\n{text}"
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())
        self._entries.update(entries)


def journal_of(folder: Path, name: str, identity: Mapping[str, Any]) -> Journal:
    """Return the journal ``name`` in ``folder`` that belongs to exactly this ``identity``."""
    return Journal(folder / f"{name}-{digest(identity)[:16]}.jsonl")


def _journal_entries(path: Path) -> Iterable[tuple[str, Any]]:
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        mark, _, body = line.decode(errors="replace").partition(" ")
        if body and mark == _line_digest(body):
            key, value = json.loads(body)
            yield key, value


def _line_digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the block ends, so that no result is added by halves."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals: list[tuple[int, FrameType | None]] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: signals.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if signals and callable(handler):
            handler(*signals[0])
