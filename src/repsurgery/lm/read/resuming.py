"""Reading texts with a model so that an interrupted job resumes: where results are kept, and which are missing."""

import dis
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from repsurgery.checkpoint import keyed_folder, uninterrupted
from repsurgery.errors import IdentityWarning
from repsurgery.lm.batching.batches import evaluating, run_batches, sorted_batches
from repsurgery.lm.batching.tokens import Tokens
from repsurgery.lm.load.fingerprint import fingerprint
from repsurgery.lm.read.hook_content import hook_content, qualified_name
from repsurgery.lm.read.states import Reader, Turns
from repsurgery.lm.sites.wrappers import behind, unwrapped
from repsurgery.lm.steer.forward_context import excuse_blocks, steering_in_force

__all__ = ["Results", "folder_of", "read_missing", "run_missing"]


class Results(ABC):
    """Results of reading ``n`` texts, of which some are done."""

    def __init__(self, n: int) -> None:
        self._done = np.zeros(n, dtype=bool)

    def missing(self) -> list[int]:
        """Return the indices of the texts that are not done."""
        return [i for i, done in enumerate(self._done) if not done]

    @abstractmethod
    def save(self) -> None:
        """Write what is not yet on disk."""


def read_missing(
    results: Results,
    add: Callable[[list[int], dict[str, NDArray[np.float32]]], None],
    model: nn.Module,
    read: Reader,
    tokens: Sequence[Tokens],
    *,
    turns: Turns | None = None,
    batch_size: int,
    progress: bool,
    label: str,
) -> None:
    """Read the texts that are missing in ``results``, pass indices and states of each batch to ``add``, and save.

    Results are saved whatever happens, and Ctrl-C waits while a batch is added.
    """

    def run(batch: list[int]) -> None:
        states = read([tokens[i] for i in batch], None if turns is None else [turns[i] for i in batch])
        with uninterrupted():
            add(batch, states)

    options: dict[str, Any] = {"batch_size": batch_size, "progress": progress, "label": label}
    run_missing(results, run, model, list(map(len, tokens)), **options)


def run_missing(
    results: Results,
    run: Callable[[list[int]], None],
    model: nn.Module,
    lengths: Sequence[int],
    *,
    batch_size: int,
    progress: bool,
    label: str,
) -> None:
    """Call ``run`` on batches of the texts that are missing in ``results``, by their ``lengths``, and save at the end.

    Parameters
    ----------
    run : function of a list of indices
        It adds these texts to ``results``, all of them or none.
    """
    missing = results.missing()
    if not missing:
        excuse_blocks(unwrapped(model))
    batches = [[missing[i] for i in batch] for batch in sorted_batches([lengths[i] for i in missing], batch_size)]
    try:
        with evaluating(model):
            run_batches(batches, run, progress=progress, label=label, done=len(lengths) - len(missing))
    finally:
        results.save()


def folder_of(
    work_dir: str | os.PathLike[str] | None, model: nn.Module, texts: Sequence[str], settings: Mapping[str, Any]
) -> Path | None:
    """Return the folder under ``work_dir`` that belongs to exactly this job, or None if nothing can be kept.

    The name of the folder is a digest of the texts, the settings, the whole content of the model, the steering that is
    active on it and the hooks that other code put on it (see `hook_content`), so no other job can pick up these
    results. A hook that always returns None is ignored, because it changes nothing. Nothing is kept without a work
    folder, nor, with a warning, for a model whose weights are not in memory.

    Guarantees
    ----------
    A model that changed is another job (test_a_changed_model_is_read_anew).
    """
    if work_dir is None:
        return None
    model = behind(model)
    if (absent := next((name for name, p in model.named_parameters() if p.is_meta), None)) is not None:
        warnings.warn(
            f"Nothing is kept in {os.fspath(work_dir)}: the weights of {absent} are offloaded, so this model cannot be "
            "identified. Load the model into memory to resume work on it, or leave work_dir out.",
            IdentityWarning,
            stacklevel=3,
        )
        return None
    facts = [steering_in_force(unwrapped(model)), _hooks(model), fingerprint(model)]
    return keyed_folder(Path(work_dir), [list(texts), dict(settings)], facts, prefix=f"{settings['job']}-")


def _returns_none(function: Any) -> bool:
    """Return whether ``function`` always returns None, so that PyTorch keeps the state as it is."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return False
    steps = list(dis.get_instructions(code))
    ends = [i for i, step in enumerate(steps) if step.opname in ("RETURN_CONST", "RETURN_VALUE")]
    returned = [steps[i] if steps[i].opname == "RETURN_CONST" else steps[i - 1] for i in ends]
    return all(step.opname in ("LOAD_CONST", "RETURN_CONST") and step.argval is None for step in returned)


def _hooks(model: nn.Module) -> list[Any]:
    """Return the modules and contents of hooks from outside this package that may change a state."""
    return [
        [path, hook_content(hook)]
        for path, module in model.named_modules()
        for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
        if not qualified_name(hook).startswith("repsurgery.") and not _returns_none(hook)
    ]
