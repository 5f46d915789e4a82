"""A folder that is built once, appears complete or not at all, and is verified each time it is used."""

import hashlib
import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from repsurgery.errors import CacheWarning, ModelError

__all__ = ["CACHE_VARIABLE", "build_once", "cache_root", "flaw", "make_ordinary", "sha256"]

CACHE_VARIABLE = "REPSURGERY_CACHE"
_MANIFEST = "repsurgery.json"
_BUILDING = ".building-"


def cache_root() -> Path:
    """Return the folder of converted models: ``REPSURGERY_CACHE``, else the platform's user cache."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "repsurgery"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def flaw(folder: Path, *, source: str) -> str | None:
    """Return why ``folder`` cannot be used as a build of ``source``, or None when every digest matches."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        if manifest["source"] != source:
            return "it was built from another source"
        files = dict(manifest["files"])
    except FileNotFoundError:
        return "it has no manifest"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"its manifest cannot be read ({error})"
    for name, digest in files.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if sha256(folder / name) != digest:
            return f"{name} does not match its digest"
    return None


def build_once(folder: Path, build: Callable[[Path], None], *, source: str) -> Path:
    """Return ``folder``, built by ``build`` unless it exists and is intact.

    Parameters
    ----------
    folder : Path
        The folder of the result; its parent is created.
    build : callable
        Fills the empty folder that it receives. It may be killed at any moment: nothing appears at ``folder`` before
        it has returned and every file has a digest. Processes that ask at the same time wait for the first.
    source : str
        Digest of the source; a folder built from another source is built again.
    """
    if flaw(folder, source=source) is None:
        return folder
    from filelock import FileLock

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{folder.name}.lock"):
            reason = flaw(folder, source=source)
            if reason is None:
                return folder
            if folder.exists():
                warnings.warn(f"{folder} is built again: {reason}.", CacheWarning, stacklevel=2)
            for abandoned in folder.parent.glob(f"{_BUILDING}{folder.name}-*"):
                shutil.rmtree(abandoned, ignore_errors=True)
            _build(folder, build, source)
    except OSError as error:
        raise ModelError(
            f"The converted model cannot be stored in {folder.parent} ({error}). "
            f"Free some space, or set {CACHE_VARIABLE} to a folder that can be written."
        ) from error
    return folder


def make_ordinary(folder: Path) -> None:
    """Give the weights in ``folder`` the usual permissions of a new file; safetensors makes them private."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        probe = Path(scratch) / "probe"
        probe.touch()  # the kernel applies the umask, which cannot be read without being changed
        for weights in folder.glob("*.safetensors"):
            weights.chmod(probe.stat().st_mode)


def _build(folder: Path, build: Callable[[Path], None], source: str) -> None:
    workshop = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{_BUILDING}{folder.name}-"))
    try:
        # one level down: mkdtemp's own folder is private to the user, a cache need not be
        fresh = workshop / "fresh"
        fresh.mkdir()
        build(fresh)
        files = {path.relative_to(fresh).as_posix(): sha256(path) for path in fresh.rglob("*") if path.is_file()}
        manifest = json.dumps({"source": source, "files": files}, indent=1, sort_keys=True)
        (fresh / _MANIFEST).write_text(manifest, encoding="utf-8")
        make_ordinary(fresh)
        if folder.exists():
            folder.rename(workshop / "flawed")
        fresh.rename(folder)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
