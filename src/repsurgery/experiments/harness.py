"""EleutherAI's lm-evaluation-harness: an older import path of `repsurgery.studies.harness`.

Importing it registers the model type "repsurgery" with the harness.
"""

from repsurgery.studies.harness import SteeredLM, TaskManager, run_harness

__all__ = ["SteeredLM", "TaskManager", "run_harness"]
