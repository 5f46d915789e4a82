"""One safetensors file with a versioned, digested JSON header: no pickle, nothing half-written.

Every file of this package holds named arrays and one JSON header. The digest covers both, so that
a flipped bit is an error rather than a slightly different map.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load as arrays_from
from safetensors.numpy import save as serialised

from repsurgery.errors import FileFormatError

__all__ = [
    "FORMAT_VERSION",
    "Contents",
    "digest_of",
    "from_bytes",
    "read_file",
    "replace_file",
    "to_bytes",
    "write_file",
]

FORMAT_VERSION = 1
_KEY = "repsurgery"


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file holds: its ``kind``, a JSON ``header`` and named ``arrays``."""

    kind: str
    header: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


def digest_of(arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any] | None = None) -> str:
    """SHA-256 over header and arrays (names, dtypes, shapes, bytes), independent of their order."""
    sha = hashlib.sha256(json.dumps(header or {}, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        sha.update(array.data)
    return sha.hexdigest()


def write_file(path: str | os.PathLike[str], contents: Contents) -> None:
    """Write ``contents`` atomically: the file is there whole, or as it was before."""
    replace_file(Path(path), to_bytes(contents))


def to_bytes(contents: Contents) -> bytes:
    """Return what a file of ``contents`` holds, to send it instead."""
    header = {"version": FORMAT_VERSION, "kind": contents.kind, "header": dict(contents.header)}
    arrays = {name: np.array(array, order="C") for name, array in contents.arrays.items()}
    text = json.dumps(header, sort_keys=True)
    metadata = {_KEY: text, "digest": digest_of(arrays, json.loads(text))}
    return bytes(serialised(arrays, metadata=metadata))


def replace_file(path: Path, data: bytes) -> None:
    """Write ``data`` atomically."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} into. Create it first.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file in it.")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o666 & ~_umask())  # noqa: PTH101 - a temporary file is private; a saved one is ordinary
        os.replace(name, path)  # noqa: PTH105 - the atomic rename itself
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_file(path: str | os.PathLike[str], *, kind: str | None = None) -> Contents:
    """Read a file back, checking version, kind, digest and finiteness before anything is built from it."""
    return _checked(Path(path), *_raw(Path(path)), kind)


def from_bytes(data: bytes, *, kind: str | None = None) -> Contents:
    """Return the contents of bytes made by `to_bytes`, checked as those of a file are."""
    where = Path("<bytes>")
    try:
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size])["__metadata__"]
        arrays = arrays_from(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise FileFormatError(
            f"These bytes are truncated or no safetensors file ({error}). Send them again."
        ) from error
    return _checked(where, metadata, arrays, kind)


def _checked(path: Path, metadata: Mapping[str, str], arrays: dict[str, NDArray[Any]], kind: str | None) -> Contents:
    header = _header(path, metadata)
    if digest_of(arrays, header) != metadata.get("digest"):
        raise FileFormatError(f"{path} was altered after it was written: its digest does not match. Write it again.")
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FileFormatError(f"{path} holds NaN or infinity in '{name}'. Fit again and save the result.")
    if kind is not None and header["kind"] != kind:
        raise FileFormatError(f"{path} holds a {header['kind']}, not a {kind}. Open it with repsurgery.load.")
    return Contents(header["kind"], header["header"], arrays)


def _raw(path: Path) -> tuple[Mapping[str, str], dict[str, NDArray[Any]]]:
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"There is no file to read: {path} {what}.")
    try:
        with safe_open(path, framework="numpy") as stream:
            return stream.metadata() or {}, {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise FileFormatError(f"{path} is truncated or no safetensors file ({error}). Write it again.") from error


def _header(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    if _KEY not in metadata:
        raise FileFormatError(f"{path} was not written by repsurgery: its header is missing.")
    try:
        header = json.loads(metadata[_KEY])
        version = header["version"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise FileFormatError(f"{path} has an unreadable header. Write it again.") from error
    if version != FORMAT_VERSION:
        raise FileFormatError(
            f"{path} has format version {version}; this repsurgery reads {FORMAT_VERSION}. "
            "Upgrade repsurgery, or write the file again with this version."
        )
    return dict(header)
