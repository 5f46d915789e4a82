"""From tokens to batches, and from batches to passes of a model that fit into memory."""

import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import nn

from repsurgery.arrays import check_integer
from repsurgery.errors import BatchHalvedWarning, ParameterError
from repsurgery.lm.batching.tokens import encode
from repsurgery.lm.sites.wrappers import behind, unwrapped
from repsurgery.progress import progress_bar

__all__ = [
    "entry_device",
    "evaluating",
    "map_batches",
    "out_of_memory",
    "own_order",
    "run_batches",
    "sorted_batches",
    "split_texts",
]

Result = TypeVar("Result")

_EVALUATING: "weakref.WeakKeyDictionary[nn.Module, tuple[int, list[nn.Module]]]" = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()
_OWN_ORDER: ContextVar[tuple[int, ...]] = ContextVar("repsurgery_own_order", default=())


def sorted_batches(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Return the indices in batches of ``size``, longest first: with little padding, and the largest batch first."""
    size = check_integer("batch_size", size)
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    return [order[start : start + size] for start in range(0, len(order), size)]


def split_texts(
    model: nn.Module, tokenizer: Any, texts: list[str], *, parts: int, max_length: int | None, batch_size: int
) -> list[list[int]]:
    """Return the indices of the texts that each of ``parts`` processes reads, in order; some may be empty.

    `class_moments` of a part forms the same batches as `class_moments` of all texts. A state is rounded differently
    when its text is padded to another length, so only then does the sum over parts equal the result of one process.

    Guarantees
    ----------
    The batches of the parts are those of all texts (test_parts_read_the_batches_of_one_process).
    """
    tokens = encode(model, tokenizer, texts, max_length=max_length, caller="class_moments")
    batches = sorted_batches([len(row) for row in tokens], batch_size)
    # only the last batch may be short, and it is the last of its part, so each part is cut into the same batches again
    return [sorted(i for batch in batches[part::parts] for i in batch) for part in range(parts)]


@contextmanager
def own_order(model: nn.Module) -> Iterator[None]:
    """While the block runs, the caller relies on the order of the rows that ``model`` reads in this thread."""
    token = _OWN_ORDER.set((*_OWN_ORDER.get(), id(unwrapped(model))))
    try:
        yield
    finally:
        _OWN_ORDER.reset(token)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run the block without dropout and gradients; the last thread to leave restores the mode of every module."""
    if id(unwrapped(model)) in _OWN_ORDER.get():
        raise ParameterError(
            "Inside lm.steer_rows every row of a batch has its own steering, and this function orders its batches "
            "itself. Call the model in the block, or use lm.generate(steering=[...]) outside of it."
        )
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
    """Return the device on which the model expects its tokens."""
    embeddings = getattr(model, "get_input_embeddings", None)
    module = embeddings() if callable(embeddings) else model
    device: torch.device = next(module.parameters()).device
    return device


def run_batches(
    batches: Sequence[list[int]], run: Callable[[list[int]], None], *, progress: bool, label: str, done: int = 0
) -> None:
    """Call ``run`` on each batch of indices; if one exceeds memory, halve it and every later batch of its size.

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
                if not out_of_memory(error) or len(batch) == 1:
                    raise
                largest = (len(batch) + 1) // 2
                waiting.append(batch)
                _warn(len(batch), largest, label)
            else:
                advance(len(batch))


def map_batches(
    lengths: Sequence[int], run: Callable[[list[int]], Sequence[Result]], *, batch_size: int, progress: bool, label: str
) -> list[Result]:
    """Return the result of each item, in order, where ``run`` returns the results of a batch of indices."""
    results: dict[int, Result] = {}

    def store(batch: list[int]) -> None:
        results.update(zip(batch, run(batch), strict=True))

    run_batches(sorted_batches(lengths, batch_size), store, progress=progress, label=label)
    return [results[i] for i in range(len(lengths))]


def out_of_memory(error: BaseException) -> bool:
    """Return whether ``error`` says that memory is exhausted."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return "out of memory" in str(error).lower() or "can't allocate memory" in str(error).lower()


def _warn(size: int, smaller: int, label: str) -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    warnings.warn(
        f"{label}: a batch of {size} does not fit into memory; continuing with {smaller}. "
        f"Pass batch_size={smaller} to avoid the failed attempt.",
        BatchHalvedWarning,
        stacklevel=4,
    )
