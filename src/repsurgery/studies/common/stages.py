"""Stages of a long run: each kept as one digested file, so that an interrupted run goes on where it stopped."""

import hashlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import repsurgery
from repsurgery.errors import CacheWarning, FileFormatError
from repsurgery.files import Contents, read_file, write_file

__all__ = ["Stages"]

KIND = "stage"
LAYOUT = 1
"""Raised when what a stage holds changes, so that files of an older layout are left alone."""


@dataclass(frozen=True, slots=True)
class Stages:
    """A folder of finished stages of exactly one run.

    Attributes
    ----------
    folder : path
        Named by the digest of whatever decides the outcome, and of this package's version.
    """

    folder: Path

    @classmethod
    def of(cls, root: Path, identity: Mapping[str, Any]) -> "Stages":
        """Return the stages of the run with this ``identity`` under ``root``."""
        text = json.dumps({**identity, "layout": LAYOUT, "repsurgery": repsurgery.__version__}, sort_keys=True)
        folder = root / hashlib.sha256(text.encode()).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder)

    def get(self, name: str, compute: Callable[[], Contents]) -> Contents:
        """Return the stage ``name``: as it was kept, or computed now and kept.

        A damaged file is computed again, with a warning.
        """
        path = self.folder / f"{name}.safetensors"
        if path.exists():
            try:
                return read_file(path, kind=KIND)
            except FileFormatError as error:
                warnings.warn(f"The stage '{name}' is computed again: {error}", CacheWarning, stacklevel=3)
        found = compute()
        # written and read back alike: a resumed run sees exactly what the first one saw
        write_file(path, found)
        return read_file(path, kind=KIND)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Lend a folder for rows on disk; those of processes that were killed are cleared away."""
        for left in self.folder.glob("rows-*"):
            if not _alive(int(left.name.split("-")[1])):
                shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=f"rows-{os.getpid()}-") as folder:
            yield Path(folder)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
