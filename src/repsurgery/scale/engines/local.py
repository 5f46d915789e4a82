"""`LocalEngine`: local processes, each with one thread."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, Self, cast

from joblib import cpu_count

from repsurgery.scale.engines.base import RETRIES, check_workers, lost

__all__ = ["LocalEngine"]

PATIENCE = 5.0
"""Seconds that an idle worker has to exit before it is killed."""


@dataclass(frozen=True, slots=True)
class _Worker:
    process: SpawnProcess
    connection: Connection


class LocalEngine:
    """Runs jobs in processes; with one worker, in this process.

    Parameters
    ----------
    workers : int or None
        Number of processes; None: one per core that this process may use.

    Notes
    -----
    Processes are spawned: a script that uses more than one must guard its work with ``if __name__ == "__main__":``.
    """

    def __init__(self, *, workers: int | None = None) -> None:
        self._workers = check_workers(workers) or cpu_count()
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, tuple[_Worker, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker, _ in self._busy.values():
            worker.process.kill()
        workers = [*self._idle, *(worker for worker, _ in self._busy.values())]
        for worker in workers:
            worker.connection.close()
        for worker in workers:
            worker.process.join(PATIENCE)
            worker.process.kill()
            worker.process.join()
        self._idle, self._busy = [], {}

    def map(self, function: Callable[[Any], Any], jobs: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield (index, result) in order of completion."""
        if self._workers == 1 or len(jobs) < 2:
            yield from ((i, function(job)) for i, job in enumerate(jobs))
            return
        todo, tries = deque(range(len(jobs))), [0] * len(jobs)
        while todo or self._busy:
            while todo and len(self._busy) < self._workers:
                self._assign(todo.popleft(), function, jobs)
            for connection in cast("list[Connection]", wait(list(self._busy))):
                worker, i = self._busy.pop(connection)
                try:
                    result = connection.recv()
                except (EOFError, ConnectionError):
                    worker.process.join()
                    tries[i] += 1
                    if tries[i] <= RETRIES:
                        todo.append(i)
                    else:
                        yield i, lost(_reason(worker.process.exitcode))
                else:
                    self._idle.append(worker)
                    yield i, result

    def _assign(self, i: int, function: Callable[[Any], Any], jobs: Sequence[Any]) -> None:
        worker = self._idle.pop() if self._idle else _start_worker()
        self._busy[worker.connection] = worker, i
        with suppress(ConnectionError):  # a worker that already died is noticed in `map`, by its closed connection
            worker.connection.send((function, jobs[i]))


def _reason(exitcode: int | None) -> str:
    # Python exits with 1 when the script, which each worker imports, starts workers itself
    hint = "; does the script start its work outside of if __name__ == '__main__'" if exitcode == 1 else ""
    return f"exit code {exitcode}{hint}"


def _start_worker() -> _Worker:
    # spawned, not forked: threads of BLAS, Arrow or torch do not survive a fork
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there,), daemon=True)
    with _interrupts_blocked():
        process.start()
    there.close()
    return _Worker(process, here)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Make a process that starts in this block ignore Ctrl-C from its first moment: its imports alone take seconds.

    Ctrl-C in this process is delayed until the start is complete. Blocking the signal is not enough: another thread may
    receive it, and Python would then interrupt the start halfway.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    delayed: list[Any] = []
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda *call: delayed.append(call)) if main else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if main:
            signal.signal(signal.SIGINT, handler)
        if delayed and callable(handler):
            handler(*delayed[0])


def _work(connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver stops its workers
    try:
        while True:
            function, job = connection.recv()
            connection.send(function(job))
    except (EOFError, ConnectionError):
        return  # the driver died or closed the connection
