"""Twins of a model: two independent computations use two cores better than one that is split over both.

When one matrix product is split over two cores, each waits for the slower one; on a busy machine this is several times
slower. Twins share their weights but not their hooks, so that each can be steered on its own in a thread of its own.
"""

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
from threadpoolctl import threadpool_limits

__all__ = ["Twin", "each", "one_thread_each", "shared_copy", "twins"]

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class Twin:
    """A model that shares its weights with its twins, and its own tokenizer."""

    model: Any
    tokenizer: Any


def twins(model: Any, tokenizer: Any, *, most: int = 2) -> list[Twin]:
    """Return ``model`` and copies that share its weights: one per core, at most ``most``."""
    copies = [Twin(shared_copy(model), copy.deepcopy(tokenizer)) for _ in range(_cores(most) - 1)]
    return [Twin(model, tokenizer), *copies]


def shared_copy(model: Any) -> Any:
    """Return a copy of ``model`` that shares its weights, but neither modules nor hooks."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())})


def each(work: Callable[[Twin, Job], Result], jobs: Sequence[Job], among: Sequence[Twin]) -> list[Result]:
    """Return ``work(twin, job)`` for each job, in order; each twin runs one job at a time.

    Ctrl-C does not wait for running jobs: no further job begins, and everything stored on disk remains.
    """
    free: SimpleQueue[Twin] = SimpleQueue()
    for twin in among:
        free.put(twin)

    def run(job: Job) -> Result:
        # OpenMP sets the number of threads per calling thread
        torch.set_num_threads(1)
        twin = free.get()
        try:
            return work(twin, job)
        finally:
            free.put(twin)

    pool = ThreadPoolExecutor(len(among))
    patient = True
    try:
        return [future.result() for future in [pool.submit(run, job) for job in jobs]]
    except KeyboardInterrupt:
        patient = False
        raise
    finally:
        pool.shutdown(wait=patient, cancel_futures=True)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Run every matrix product on its calling thread alone, inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def _cores(most: int) -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(most, usable))
