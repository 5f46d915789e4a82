"""The thread for which code runs: all threads share the hooks of a model, so each hook checks its caller."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["HOOKS_LOCK", "Owner", "acting_for", "acting_thread"]

HOOKS_LOCK = threading.RLock()
"""Acquired while hooks are set or removed: PyTorch numbers hooks without a lock, and equal numbers overwrite."""

_WORKERS_OF = "torch.nn.parallel.parallel_apply"


class _Acting(threading.local):
    thread: threading.Thread | None = None


_ACTING = _Acting()


class Owner:
    """The thread that created this object, and its asyncio task if it ran in one.

    Guarantees
    ----------
    Another thread is not the owner (test_every_thread_gets_its_own_steering).
    Another asyncio task is not the owner (test_asyncio_tasks_are_told_apart).
    A thread that PyTorch starts for a pass works for the caller
    (test_workers_of_a_parallel_pass_belong_to_its_caller).
    """

    __slots__ = ("_task", "thread")

    def __init__(self) -> None:
        self.thread = acting_thread()
        self._task = _current_task()

    def here(self) -> bool:
        """Return whether the calling code runs for the owner."""
        return acting_thread() is self.thread and (self._task is None or _current_task() is self._task)


def acting_thread() -> threading.Thread:
    """Return the thread for which this one works: itself, unless PyTorch started it for a parallel pass."""
    if _ACTING.thread is not None:
        return _ACTING.thread
    current = threading.current_thread()
    if getattr(getattr(current, "_target", None), "__module__", None) != _WORKERS_OF:
        return current
    _ACTING.thread = _starter_of(current)
    return _ACTING.thread


@contextmanager
def acting_for(thread: threading.Thread) -> Iterator[None]:
    """Let the current thread work for ``thread`` while the block runs."""
    before, _ACTING.thread = _ACTING.thread, thread
    try:
        yield
    finally:
        _ACTING.thread = before


def _starter_of(worker: threading.Thread) -> threading.Thread:
    """Return the thread that waits in `parallel_apply` for ``worker``; ``worker`` itself where there is none."""
    threads = {thread.ident: thread for thread in threading.enumerate()}
    for ident, top in sys._current_frames().items():
        frame: Any = top
        while frame is not None:
            if frame.f_globals.get("__name__") == _WORKERS_OF and worker in frame.f_locals.get("threads", ()):
                return threads.get(ident, worker)
            frame = frame.f_back
    return worker


def _current_task() -> Any:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
