"""A folder that is built once, appears complete or not at all, and is verified each time it is used."""

import json
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from platformdirs import user_cache_path

from repsurgery.checkpoint import atomic_folder, file_digest
from repsurgery.errors import CacheWarning, ModelError

__all__ = ["CACHE_VARIABLE", "build_once", "cache_root", "flaw", "make_ordinary"]

CACHE_VARIABLE = "REPSURGERY_CACHE"
_MANIFEST = "repsurgery.json"


def cache_root() -> Path:
    """Return the folder of converted models and resumable work: ``REPSURGERY_CACHE``, else the user's cache folder."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser() if chosen else user_cache_path("repsurgery", appauthor=False, opinion=False)


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
        if file_digest(folder / name) != digest:
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
            with atomic_folder(folder) as draft:
                build(draft)
                _write_manifest(draft, source)
                make_ordinary(draft)
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


def _write_manifest(folder: Path, source: str) -> None:
    files = {path.relative_to(folder).as_posix(): file_digest(path) for path in folder.rglob("*") if path.is_file()}
    manifest = json.dumps({"source": source, "files": files}, indent=1, sort_keys=True)
    (folder / _MANIFEST).write_text(manifest, encoding="utf-8")
