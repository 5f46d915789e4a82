"""One safetensors file with a versioned, digested JSON header: no pickle, nothing half-written.

Every file of this package holds named arrays and one JSON header. The digest covers both, so that
a flipped bit is an error rather than a slightly different map. A file is read header first: what was not
written by this package, or holds another kind of value, is refused before any array is read.
"""

import hashlib
import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load as arrays_from
from safetensors.numpy import save as serialised

from repsurgery.checkpoint import atomic_file, canonical_json
from repsurgery.errors import FileFormatError

__all__ = [
    "FORMAT_VERSION",
    "Contents",
    "built_from",
    "digest_of",
    "from_bytes",
    "read_file",
    "to_bytes",
    "write_file",
]

FORMAT_VERSION = 1
_KEY = "repsurgery"
_LARGEST_HEADER = 100_000_000
"""The limit of the safetensors format itself, in bytes."""
_DTYPES = frozenset({"BOOL", "F16", "F32", "F64", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"})
"""What NumPy can hold; weights of models are often BF16 or F8."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file holds: its ``kind``, a JSON ``header`` and named ``arrays``."""

    kind: str
    header: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


def digest_of(arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any] | None = None) -> str:
    """SHA-256 over header and arrays (names, dtypes, shapes, bytes), independent of their order."""
    sha = hashlib.sha256(canonical_json(header or {}).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        sha.update(array.data)
    return sha.hexdigest()


def write_file(path: str | os.PathLike[str], contents: Contents) -> None:
    """Write ``contents`` atomically: the file is there whole, or as it was before."""
    data = to_bytes(contents)
    with atomic_file(Path(path)) as stream:
        stream.write(data)


def to_bytes(contents: Contents) -> bytes:
    """Return what a file of ``contents`` holds, to send it instead."""
    header = {"version": FORMAT_VERSION, "kind": contents.kind, "header": dict(contents.header)}
    arrays = {name: np.array(array, order="C") for name, array in contents.arrays.items()}
    text = canonical_json(header)
    metadata = {_KEY: text, "digest": digest_of(arrays, json.loads(text))}
    return bytes(serialised(arrays, metadata=metadata))


def read_file(path: str | os.PathLike[str], *, kind: str | Collection[str] | None = None) -> Contents:
    """Read a file back, checking version, kind, digest and finiteness before anything is built from it.

    Parameters
    ----------
    path : path
    kind : str, several of them, or None
        What the file may hold; None: anything that this package writes.

    Raises
    ------
    FileFormatError
        A file that is truncated, altered, foreign, no regular file, or of another kind. Nothing but its header was
        read where that tells.
    FileNotFoundError
        There is no such file.

    Guarantees
    ----------
    A foreign file is refused by its header alone (test_a_foreign_file_is_refused_by_its_header).
    Whatever a header holds, the error is a `FileFormatError` (test_a_forged_header_is_refused_or_loads).
    """
    file = Path(path)
    with _reading(file):
        _require_regular(file)
        with file.open("rb") as stream:
            head = _head(file, stream.read(8), file.stat().st_size, stream.read)
        inner = _inner(file, head, kind)
        with safe_open(file, framework="numpy") as tensors:
            arrays = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
        return _checked(file, head, inner, arrays)


def from_bytes(data: bytes, *, kind: str | Collection[str] | None = None) -> Contents:
    """Return the contents of bytes made by `to_bytes`, checked as those of a file are."""
    where = Path("<bytes>")
    with _reading(where):
        head = _head(where, data[:8], len(data), lambda size: data[8 : 8 + size])
        inner = _inner(where, head, kind)
        return _checked(where, head, inner, arrays_from(data))


@contextmanager
def built_from(what: str, *, remedy: str = "Write it again.") -> Iterator[None]:
    """Raise a `FileFormatError` for whatever the block finds wrong with the contents of a file.

    A header may hold any JSON whatsoever, so that building a value from it can fail in every way that Python knows.

    Parameters
    ----------
    what : str
        What is built ("class moments"), for the message.
    remedy : str
        What to do, for the message.
    """
    try:
        yield
    except FileFormatError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        told = str(error).rstrip(".") if isinstance(error, ValueError) else repr(error)
        raise FileFormatError(f"The file's header and arrays do not make {what}: {told}. {remedy}") from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (FileFormatError, FileNotFoundError, PermissionError, MemoryError):
        raise
    except Exception as error:
        # two parsers of bytes by a stranger: whatever they raise means that this is not such a file
        told = f" ({error})" if isinstance(error, SafetensorError | ValueError) else ""
        raise FileFormatError(f"{path} is truncated or is not a safetensors file{told}. Write it again.") from error


def _require_regular(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(f"There is no file to read: {path} does not exist.") from error
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise FileFormatError(f"{path} is {what}. Give the name of a file that repsurgery wrote.")


def _head(path: Path, start: bytes, whole: int, read: Any) -> dict[str, Any]:
    """Return the JSON at the start of a safetensors file; no more is read than the file holds."""
    size = int.from_bytes(start, "little")
    if len(start) < 8 or not 2 <= size <= min(whole - 8, _LARGEST_HEADER):
        raise FileFormatError(f"{path} is truncated or is not a safetensors file. Write it again.")
    head = json.loads(read(size).decode("utf-8"))
    if not isinstance(head, dict):
        raise FileFormatError(f"{path} is not a safetensors file: its header is not a JSON object. Write it again.")
    return head


def _inner(path: Path, head: Mapping[str, Any], kind: str | Collection[str] | None) -> dict[str, Any]:
    """Return our own header, checked before any array is read."""
    metadata = head.get("__metadata__")
    if not isinstance(metadata, dict) or _KEY not in metadata:
        raise FileFormatError(f"{path} was not written by repsurgery: its header is missing.")
    inner = json.loads(metadata[_KEY])
    if not isinstance(inner, dict) or type(inner.get("version")) is not int:
        raise FileFormatError(f"{path} has an unreadable header. Write it again.")
    if inner["version"] != FORMAT_VERSION:
        raise FileFormatError(
            f"{path} has format version {inner['version']}; this repsurgery reads {FORMAT_VERSION}. "
            "Upgrade repsurgery, or write the file again with this version."
        )
    if not isinstance(inner.get("kind"), str) or not isinstance(inner.get("header"), dict):
        raise FileFormatError(f"{path} has an unreadable header. Write it again.")
    wanted = [kind] if isinstance(kind, str) else kind
    if wanted is not None and inner["kind"] not in wanted:
        raise FileFormatError(
            f"{path} holds a {inner['kind']}, not a {' or '.join(wanted)}. Give a file of the kind that is needed, "
            "or upgrade repsurgery if it should know this kind."
        )
    strange = [name for name, entry in head.items() if name != "__metadata__" and entry["dtype"] not in _DTYPES]
    if strange:
        raise FileFormatError(f"{path} holds '{strange[0]}' in a number format that repsurgery never writes.")
    return inner


def _checked(path: Path, head: Mapping[str, Any], inner: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Contents:
    if digest_of(arrays, inner) != head["__metadata__"].get("digest"):
        raise FileFormatError(f"{path} was altered after it was written: its digest does not match. Write it again.")
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FileFormatError(f"{path} holds NaN or infinity in '{name}'. Fit again and save the result.")
    return Contents(inner["kind"], inner["header"], arrays)
