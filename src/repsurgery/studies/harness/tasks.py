"""Tasks for the harness that use local data."""

from pathlib import Path
from typing import Any

import lm_eval.tasks

from datasets import Dataset
from repsurgery.datasets import load_wikitext2

__all__ = ["TaskManager", "wikitext2"]

LOCAL_TASKS = Path(__file__).with_name("local_tasks")
"""The folder of the tasks' YAML files."""


class TaskManager(lm_eval.tasks.TaskManager):
    """The task manager of the harness, extended by the tasks of this package.

    Parameters
    ----------
    include_path : path, list of paths or None
        Further folders of tasks; they take precedence over tasks of the same name.
    **options
        As in the harness; ``metadata={"documents": 8}`` takes the first 8 documents of ``wikitext2_local``.
    """

    def __init__(self, *, include_path: Any = None, **options: Any) -> None:
        more = include_path if isinstance(include_path, list | tuple) else [include_path] if include_path else []
        super().__init__(include_path=[LOCAL_TASKS, *more], **options)


def wikitext2(documents: int | None = None, data_dir: str | None = None, **_: Any) -> dict[str, Dataset]:
    """Return the dataset of ``wikitext2_local``: the first ``documents`` pages of `load_wikitext2`, or all.

    The harness calls this with the metadata of a run, model arguments among them.
    """
    pages = load_wikitext2(data_dir)
    chosen = pages if documents is None else pages.first(documents)
    return {"test": Dataset.from_dict({"page": list(chosen.texts)})}
