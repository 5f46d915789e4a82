"""Use two cores without making one computation wait for the other: twins of a model, a thread for each.

Splitting one matrix product over two cores makes each wait for the slower, which costs a factor where the machine
has other work. Two independent computations never wait. Twins share their weights but not their hooks, so each can
be steered by itself.
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

__all__ = ["Twin", "each", "one_thread_each", "twins"]

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class Twin:
    """A model that shares its weights with its siblings, and a tokenizer of its own."""

    model: Any
    tokenizer: Any


def twins(model: Any, tokenizer: Any, *, most: int = 2) -> list[Twin]:
    """Return ``model`` itself and copies that share its weights, as many as there are cores, ``most`` at most."""
    shared = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    copies = [Twin(copy.deepcopy(model, dict(shared)), copy.deepcopy(tokenizer)) for _ in range(_cores(most) - 1)]
    return [Twin(model, tokenizer), *copies]


def each(work: Callable[[Twin, Job], Result], jobs: Sequence[Job], among: Sequence[Twin]) -> list[Result]:
    """Return ``work(twin, job)`` of each job, in order, every twin busy with one job at a time.

    Ctrl-C does not wait for the jobs at work: no further one begins, and what they note on disk stays noted.
    """
    free: SimpleQueue[Twin] = SimpleQueue()
    for twin in among:
        free.put(twin)

    def run(job: Job) -> Result:
        # with OpenMP the number of threads belongs to the calling thread
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
    """Let every product run on the thread that asks for it, while the block runs."""
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
