"""EleutherAI's lm-evaluation-harness for steered models; importing this registers the model type "repsurgery"."""

from repsurgery.errors import MissingExtraError

try:
    import lm_eval
except ImportError as error:
    raise MissingExtraError(
        f"repsurgery.studies.harness needs lm-evaluation-harness ({error}): pip install 'repsurgery[evaluation]'"
    ) from error

from repsurgery.studies.harness.command import run_harness
from repsurgery.studies.harness.model import SteeredLM
from repsurgery.studies.harness.tasks import TaskManager

del lm_eval

__all__ = ["SteeredLM", "TaskManager", "run_harness"]
