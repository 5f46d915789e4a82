"""Work that survives an interruption: what identifies a job, and files that are there whole or not at all."""

import dis
import hashlib
import json
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from torch import nn

from repsurgery.errors import IdentityWarning
from repsurgery.lm.load.fingerprint import fingerprint
from repsurgery.lm.sites.wrappers import behind, unwrapped
from repsurgery.lm.steer.forward_context import steering_in_force

__all__ = ["SAVE_SECONDS", "folder_of", "uninterrupted"]

SAVE_SECONDS = 30.0
"""Save so often at least; an interruption saves at once, and only a killed process can lose this much."""


def folder_of(
    work_dir: str | os.PathLike[str] | None, model: nn.Module, texts: Sequence[str], settings: Mapping[str, Any]
) -> Path | None:
    """Return the folder of exactly this job under ``work_dir``, made if need be; None where nothing is kept.

    Its name is a digest of texts, settings, the whole content of the model, whatever steers the model now and the
    names of hooks that others put on it, so another job can never take over these results. Nothing is kept without a
    work folder, nor, with a warning, of a model whose weights are not in memory. A hook is known by its name alone, and
    one that always returns None is left out, because it changes nothing.

    Guarantees
    ----------
    A model that changed is another job (test_a_changed_model_is_read_anew).
    """
    if work_dir is None:
        return None
    model = behind(model)
    if (absent := next((name for name, p in model.named_parameters() if p.is_meta), None)) is not None:
        warnings.warn(
            f"Nothing is kept in {os.fspath(work_dir)}: the weights of {absent} are offloaded, so nothing tells this "
            "model from another. Load the model into memory to resume work on it, or leave work_dir out.",
            IdentityWarning,
            stacklevel=3,
        )
        return None
    sha = hashlib.sha256(json.dumps([list(texts), dict(settings)], sort_keys=True).encode())
    sha.update(json.dumps([steering_in_force(unwrapped(model)), _hooks(model), fingerprint(model)]).encode())
    folder = Path(work_dir) / f"{settings['job']}-{sha.hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _only_watches(function: Any) -> bool:
    """Return whether ``function`` always returns None, so that PyTorch goes on with what was there."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return False
    steps = list(dis.get_instructions(code))
    ends = [i for i, step in enumerate(steps) if step.opname in ("RETURN_CONST", "RETURN_VALUE")]
    returned = [steps[i] if steps[i].opname == "RETURN_CONST" else steps[i - 1] for i in ends]
    return all(step.opname in ("LOAD_CONST", "RETURN_CONST") and step.argval is None for step in returned)


def _hooks(model: nn.Module) -> list[str]:
    """Return the places and names of hooks that are not of this package and may change a state."""
    return [
        f"{path} {_called(hook)}"
        for path, module in model.named_modules()
        for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
        if not _called(hook).startswith("repsurgery.") and not _only_watches(hook)
    ]


def _called(function: Any) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the block is done, so that no result is half taken in."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: waiting.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if waiting and callable(before):
            before(*waiting[0])
