"""EleutherAI's lm-evaluation-harness; the import path of `repsurgery.studies.harness` that users know."""

from repsurgery.studies.harness import SteeredLM, TaskManager, run_harness

__all__ = ["SteeredLM", "TaskManager", "run_harness"]
