"""The file format of this package: safetensors with a versioned JSON header and a digest, and without pickle.

Every file contains named arrays and one JSON header. The digest covers both, so that a flipped bit is an error rather
than a slightly different map. The header is read first: a file that another program wrote, or that contains another
kind of value, is refused before any array is read.
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
"""The number formats that NumPy supports; weights of models are often BF16 or F8."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file contains: its ``kind``, a JSON ``header`` and named ``arrays``."""

    kind: str
    header: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


def digest_of(arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any] | None = None) -> str:
    """Return the SHA-256 of header and arrays (names, dtypes, shapes, bytes), independent of their order."""
    sha = hashlib.sha256(canonical_json(header or {}).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        sha.update(array.data)
    return sha.hexdigest()


def write_file(path: str | os.PathLike[str], contents: Contents) -> None:
    """Write ``contents`` by `atomic_file`: afterwards the file is complete, or as it was before."""
    data = to_bytes(contents)
    with atomic_file(Path(path)) as stream:
        stream.write(data)


def to_bytes(contents: Contents) -> bytes:
    """Return the bytes of a file of ``contents``, to send them instead of writing them."""
    header = {"version": FORMAT_VERSION, "kind": contents.kind, "header": dict(contents.header)}
    arrays = {name: np.array(array, order="C") for name, array in contents.arrays.items()}
    text = canonical_json(header)
    metadata = {_KEY: text, "digest": digest_of(arrays, json.loads(text))}
    return _ordered(bytes(serialised(arrays, metadata=metadata)))


def _ordered(data: bytes) -> bytes:
    """Return a safetensors file with its header in a fixed order, which the library does not keep.

    Guarantees
    ----------
    Equal contents give equal bytes (test_equal_contents_give_equal_bytes).
    """
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the arrays begin at a multiple of eight bytes
    return len(text).to_bytes(8, "little") + text + data[start:]


def read_file(path: str | os.PathLike[str], *, kind: str | Collection[str] | None = None) -> Contents:
    """Read a file back, checking version, kind, digest and finiteness before anything is built from it.

    Parameters
    ----------
    path : path
    kind : str, several of them, or None
        The kinds of value that are accepted; None: any kind that this package writes.

    Raises
    ------
    FileFormatError
        The file is truncated, was altered, was written by another program, is not a regular file, or is of another
        kind. Only the header is read if it suffices to refuse the file.
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
    """Return the contents of bytes made by `to_bytes`, with the checks of `read_file`."""
    where = Path("<bytes>")
    with _reading(where):
        head = _head(where, data[:8], len(data), lambda size: data[8 : 8 + size])
        inner = _inner(where, head, kind)
        return _checked(where, head, inner, arrays_from(data))


@contextmanager
def built_from(what: str, *, remedy: str = "Write it again.") -> Iterator[None]:
    """Turn the errors of a block that builds a value from the contents of a file into a `FileFormatError`.

    A header may be any JSON, so building a value from it can raise almost any exception.

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
        reason = str(error).rstrip(".") if isinstance(error, ValueError) else repr(error)
        raise FileFormatError(f"The file's header and arrays do not make {what}: {reason}. {remedy}") from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (FileFormatError, FileNotFoundError, PermissionError, MemoryError):
        raise
    except Exception as error:
        # two parsers read bytes of unknown origin: any error of theirs means that the file is not in this format
        reason = f" ({error})" if isinstance(error, SafetensorError | ValueError) else ""
        raise FileFormatError(f"{path} is truncated or is not a safetensors file{reason}. Write it again.") from error


def _require_regular(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(f"There is no file to read: {path} does not exist.") from error
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise FileFormatError(f"{path} is {what}. Give the name of a file that repsurgery wrote.")


def _head(path: Path, start: bytes, whole: int, read: Any) -> dict[str, Any]:
    """Return the JSON at the start of a safetensors file, without reading past the end of the file."""
    size = int.from_bytes(start, "little")
    if len(start) < 8 or not 2 <= size <= min(whole - 8, _LARGEST_HEADER):
        raise FileFormatError(f"{path} is truncated or is not a safetensors file. Write it again.")
    head = json.loads(read(size).decode("utf-8"))
    if not isinstance(head, dict):
        raise FileFormatError(f"{path} is not a safetensors file: its header is not a JSON object. Write it again.")
    return head


def _inner(path: Path, head: Mapping[str, Any], kind: str | Collection[str] | None) -> dict[str, Any]:
    """Return the header of this package, checked before any array is read."""
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
            f"{path} contains data of kind {inner['kind']!r}, not {' or '.join(map(repr, wanted))}. Give a "
            "file of the kind needed, or upgrade repsurgery if it should know this kind."
        )
    foreign = [name for name, entry in head.items() if name != "__metadata__" and entry["dtype"] not in _DTYPES]
    if foreign:
        raise FileFormatError(f"{path} holds '{foreign[0]}' in a number format that repsurgery never writes.")
    return inner


def _checked(path: Path, head: Mapping[str, Any], inner: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Contents:
    if digest_of(arrays, inner) != head["__metadata__"].get("digest"):
        raise FileFormatError(f"{path} was altered after it was written: its digest does not match. Write it again.")
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FileFormatError(f"{path} holds NaN or infinity in '{name}'. Fit again and save the result.")
    return Contents(inner["kind"], inner["header"], arrays)
