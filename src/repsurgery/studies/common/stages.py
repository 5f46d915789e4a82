"""Stages of a long run: each is written to a file of its own, so that an interrupted run resumes after the last one."""

from collections.abc import Mapping
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


class Stages(Checkpoint[Contents]):
    """The finished stages of exactly one run, as contents of kind ``"stage"``."""

    @classmethod
    def of(cls, root: Path, identity: Mapping[str, Any]) -> "Stages":
        """Return the stages of the run with this ``identity`` under ``root``; they belong to this version alone."""
        facts = {**identity, "layout": LAYOUT, "repsurgery": repsurgery.__version__}
        return cls(keyed_folder(root, facts), partial(read_file, kind=KIND), write_file)
