"""The command line of the harness, with the model type and the tasks of this package."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lm_eval.tasks
from lm_eval.__main__ import cli_evaluate

from repsurgery.outputs import check_output_folder
from repsurgery.studies.harness.tasks import TaskManager

__all__ = ["run_harness"]


def run_harness(arguments: Sequence[str]) -> dict[str, Any] | None:
    """Run ``lm-eval`` with ``arguments``, unchanged, after a check that its folder of results can be written.

    Returns
    -------
    dict or None
        The results of each task; None where nothing was evaluated, as by ``ls``.
    """
    for folder in _output_folders(arguments):
        check_output_folder(folder)
    with _patched(arguments) as evaluated:
        cli_evaluate()
    return evaluated[-1]["results"] if evaluated and evaluated[-1] else None


def _output_folders(arguments: Sequence[str]) -> Iterator[Path]:
    # the harness puts the time into its file names, so it replaces nothing
    for word, following in zip(arguments, [*arguments, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        output = Path(value if equals else following)
        if name in ("--output_path", "-o"):
            yield output.parent if output.suffix == ".json" else output


@contextmanager
def _patched(arguments: Sequence[str]) -> Iterator[list[Any]]:
    # the harness reads sys.argv, looks up its task manager in every command, and keeps its results to itself
    argv, manager, evaluate = sys.argv, lm_eval.tasks.TaskManager, lm_eval.simple_evaluate
    evaluated: list[Any] = []

    def keeping(*args: Any, **options: Any) -> Any:
        evaluated.append(evaluate(*args, **options))
        return evaluated[-1]

    sys.argv = ["lm-eval", *arguments]
    lm_eval.tasks.TaskManager, lm_eval.simple_evaluate = TaskManager, keeping
    try:
        yield evaluated
    finally:
        sys.argv, lm_eval.tasks.TaskManager, lm_eval.simple_evaluate = argv, manager, evaluate
