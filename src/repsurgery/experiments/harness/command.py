"""The harness's own command line, with this package's model type and tasks."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import lm_eval.tasks
from lm_eval.__main__ import cli_evaluate

from repsurgery.experiments.harness.tasks import TaskManager

__all__ = ["run_harness"]


def run_harness(arguments: Sequence[str]) -> None:
    """Run ``lm-eval`` with ``arguments``, which reach it as they are."""
    with _handed_over(arguments):
        cli_evaluate()


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
