"""Checks of output paths, made before a command does any work."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

from repsurgery.errors import OutputError

__all__ = ["check_new_file", "check_new_folder", "check_output", "check_output_folder"]

Place = str | os.PathLike[str]


def check_output(out: Place, *, inputs: Iterable[Place | None] = ()) -> Path:
    """Return ``out`` as a path if a file may be written there.

    Parameters
    ----------
    out : path
        The file to write; an existing file is replaced.
    inputs : iterable of paths
        Files and folders that are read, folders with all their contents. None and paths that do not exist (such as
        a name on the hub) are ignored.

    Raises
    ------
    OutputError
        The folder does not exist or is not writable; the path is a folder or a device; or it is one of the inputs
        under any name: path, symbolic link or hard link.

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
    existing = path.stat()
    if not stat.S_ISREG(existing.st_mode):
        raise OutputError(f"{path} is not a regular file and cannot be replaced. Give another name.")
    for file in _files(inputs):
        if os.path.samestat(file.stat(), existing):
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
        Patterns of the file names that are written, replaced or removed in the folder.

    Raises
    ------
    OutputError
        The folder, or one above it, is a file; the folder is not writable; or it holds an input under a name that
        will be written.
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


def check_new_file(out: Place) -> Path:
    """Return ``out`` as a path if a file may be written there and there is none yet."""
    path = check_output(out)
    if path.exists() or path.is_symlink():
        raise OutputError(f"{path} exists already. Give another name, or remove it first.")
    return path


def check_new_folder(out: Place) -> Path:
    """Return ``out`` as a path if it may become a folder, or is an empty one that may be written."""
    path = check_output_folder(out)
    if path.exists() and any(path.iterdir()):
        raise OutputError(f"{path} is not empty. Name a new folder, so that no file of another model stays in it.")
    return path


def _require_writable(folder: Path) -> None:
    try:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        # permissions alone do not tell, to the superuser or on a file system such as /proc
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"The folder {folder} is not writable ({error.strerror}). Name another folder.") from error


def _files(places: Iterable[Place | None]) -> Iterator[Path]:
    """Yield the existing files among ``places``, and all files in the folders among them."""
    for place in (Path(place) for place in places if place is not None):
        yield from (file for file in (place.rglob("*") if place.is_dir() else [place]) if file.exists())
