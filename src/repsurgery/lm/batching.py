"""Run batches through a model: progress bar, evaluation mode, and a smaller batch where memory ends."""

import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from repsurgery.errors import BatchHalvedWarning
from repsurgery.lm.steer.standin import behind
from repsurgery.progress import progress_bar

__all__ = ["entry_device", "evaluating", "run_batches"]


_EVALUATING: "weakref.WeakKeyDictionary[nn.Module, tuple[int, list[nn.Module]]]" = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off and gradients with it; the last thread to leave puts every module back as it was."""
    model = behind(model)
    with _LOCK:
        count, training = _EVALUATING.get(model, (0, []))
        training = [*training, *(module for module in model.modules() if module.training)]
        _EVALUATING[model] = count + 1, training
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        with _LOCK:
            count, training = _EVALUATING.pop(model)
            if count > 1:
                _EVALUATING[model] = count - 1, training
            else:
                for module in training:
                    module.training = True


def entry_device(model: nn.Module) -> torch.device:
    """Return the device on which the model takes its tokens."""
    embeddings = getattr(model, "get_input_embeddings", None)
    module = embeddings() if callable(embeddings) else model
    device: torch.device = next(module.parameters()).device
    return device


def run_batches(
    batches: Sequence[list[int]],
    run: Callable[[list[int]], None],
    *,
    progress: bool,
    label: str,
    done: int = 0,
) -> None:
    """Call ``run`` on each batch of indices; a batch beyond memory is halved, as are those after it.

    Parameters
    ----------
    done : int
        Items finished in an earlier run, for the progress bar.
    """
    waiting = [list(batch) for batch in reversed(batches)]
    largest = max(map(len, batches), default=1)
    total = done + sum(map(len, batches))
    with progress_bar(label, total, show=progress, done=done) as advance:
        while waiting:
            batch = waiting.pop()
            if len(batch) > largest:
                waiting += [batch[largest:], batch[:largest]]
                continue
            try:
                run(batch)
            except (RuntimeError, MemoryError) as error:
                if not _out_of_memory(error) or len(batch) == 1:
                    raise
                largest = (len(batch) + 1) // 2
                waiting.append(batch)
                _warn(len(batch), largest, label)
            else:
                advance(len(batch))


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return "out of memory" in str(error).lower() or "can't allocate memory" in str(error).lower()


def _warn(size: int, smaller: int, label: str) -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    warnings.warn(
        f"{label}: a batch of {size} does not fit into memory; going on with {smaller}. "
        f"Pass batch_size={smaller} to avoid the lost attempt.",
        BatchHalvedWarning,
        stacklevel=4,
    )
