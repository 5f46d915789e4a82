"""The harness's own command line, with this package's model type and tasks."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import lm_eval.tasks
from lm_eval.__main__ import cli_evaluate

from repsurgery.outputs import check_output_folder
from repsurgery.studies.harness.tasks import TaskManager

__all__ = ["run_harness"]


def run_harness(arguments: Sequence[str]) -> None:
    """Run ``lm-eval`` with ``arguments``, which reach it as they are; its folder of results is checked first."""
    for folder in _output_folders(arguments):
        check_output_folder(folder)
    with _handed_over(arguments):
        cli_evaluate()


def _output_folders(arguments: Sequence[str]) -> Iterator[Path]:
    # the harness makes file names of its own, with the time in them, so that it replaces nothing
    for word, following in zip(arguments, [*arguments, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        given = Path(value if equals else following)
        if name in ("--output_path", "-o"):
            yield given.parent if given.suffix == ".json" else given


@contextmanager
def _handed_over(arguments: Sequence[str]) -> Iterator[None]:
    # the harness reads the process's arguments and looks its task manager up at every command
    before, manager = sys.argv, lm_eval.tasks.TaskManager
    sys.argv = ["lm-eval", *arguments]
    lm_eval.tasks.TaskManager = TaskManager
    try:
        yield
    finally:
        sys.argv, lm_eval.tasks.TaskManager = before, manager
