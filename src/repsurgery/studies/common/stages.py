"""Stages of a long run: each is written to a file of its own, so that an interrupted run resumes after the last one."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import repsurgery
from repsurgery.checkpoint import Checkpoint, keyed_folder
from repsurgery.files import Contents, read_file, write_file

__all__ = ["KIND", "Stages"]

KIND = "stage"
LAYOUT = 1
"""Raised when the contents of a stage change, so that files of an older layout are ignored."""
_SCRATCH = "rows-"


class Stages(Checkpoint[Contents]):
    """The finished stages of exactly one run, as contents of kind ``"stage"``."""

    @classmethod
    def of(cls, root: Path, identity: Mapping[str, Any]) -> "Stages":
        """Return the stages of the run with this ``identity`` under ``root``; they belong to this version alone."""
        facts = {**identity, "layout": LAYOUT, "repsurgery": repsurgery.__version__}
        return cls(keyed_folder(root, facts), partial(read_file, kind=KIND), write_file)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield a temporary folder, and remove those that killed processes left behind."""
        for abandoned in self.folder.glob(f"{_SCRATCH}*"):
            if not _is_alive(int(abandoned.name.split("-")[1])):
                shutil.rmtree(abandoned, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=f"{_SCRATCH}{os.getpid()}-") as folder:
            yield Path(folder)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        pass
    return True
