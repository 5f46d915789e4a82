"""The one door for outputs: what a command will write is checked before it does any work."""

import os
import stat
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

from repsurgery.errors import OutputError

__all__ = ["check_output", "check_output_folder"]

Place = str | os.PathLike[str]


def check_output(out: Place, *, inputs: Iterable[Place | None] = ()) -> Path:
    """Return ``out`` as a path if a file may be written there.

    Parameters
    ----------
    out : path
        The file to write, new or to be replaced.
    inputs : iterable of paths
        What is read: files, or folders with everything in them. None and what does not exist (a name on the hub) are
        passed over.

    Raises
    ------
    OutputError
        No such folder, one that cannot be written to, a folder or a device in the place of the file, or one of the
        inputs by whatever name: path, symbolic link or hard link.

    Guarantees
    ----------
    An input is never overwritten (test_an_input_is_never_an_output).
    """
    path = Path(out)
    if path.is_dir():
        raise OutputError(f"{path} is a folder; give the name of a file in it.")
    if not path.parent.is_dir():
        raise OutputError(f"There is no folder {path.parent} to write {path.name} into. Create it first.")
    _require_writable(path.parent)
    if not path.exists():
        return path
    there = path.stat()
    if not stat.S_ISREG(there.st_mode):
        raise OutputError(f"{path} is no regular file and cannot be replaced. Give another name.")
    for file in _files(inputs):
        if os.path.samestat(file.stat(), there):
            raise OutputError(f"{path} is one of the inputs ({file}), which would be overwritten. Give another name.")
    return path


def check_output_folder(out: Place, *, inputs: Iterable[Place | None] = (), writes: Iterable[str] = ()) -> Path:
    """Return ``out`` as a path if files may be written into that folder, which need not exist yet.

    Parameters
    ----------
    out : path
    inputs : iterable of paths
        As in `check_output`.
    writes : iterable of str
        Patterns of the names that are written, replaced or removed in the folder.

    Raises
    ------
    OutputError
        A file in the place of the folder or of one above it, a folder that cannot be written to, or an input in it
        under a name that will be written.
    """
    path = Path(out)
    above = next(place for place in (path, *path.absolute().parents) if place.exists() or place.is_symlink())
    if not above.is_dir():
        raise OutputError(f"{path} cannot be used as a folder: {above} is a file. Name another.")
    _require_writable(above)
    if path.is_dir():
        patterns = tuple(writes)
        threatened = [entry for entry in path.iterdir() if any(fnmatch(entry.name, pattern) for pattern in patterns)]
        own = {(file.stat().st_dev, file.stat().st_ino): file for file in _files(threatened)}
        for file in _files(inputs) if own else ():
            if (file.stat().st_dev, file.stat().st_ino) in own:
                raise OutputError(f"{path} holds the input {file}, which would be overwritten. Name another folder.")
    return path


def _require_writable(folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"Nothing can be written into {folder}. Name another folder.")


def _files(places: Iterable[Place | None]) -> Iterator[Path]:
    """Yield the files that are there, those of folders one by one."""
    for place in (Path(place) for place in places if place is not None):
        yield from (file for file in (place.rglob("*") if place.is_dir() else [place]) if file.exists())
