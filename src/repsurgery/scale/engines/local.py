"""`LocalEngine`: processes of this machine, each with one thread."""

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

from repsurgery.errors import ParameterError
from repsurgery.scale.engines.base import RETRIES, lost

__all__ = ["LocalEngine"]

PATIENCE = 5.0
"""Seconds that an idle worker is given to leave by itself."""


@dataclass(frozen=True, slots=True)
class _Worker:
    process: SpawnProcess
    line: Connection


class LocalEngine:
    """Processes over jobs; with one worker, this process itself.

    Parameters
    ----------
    workers : int or None
        None: one per core that this process may use.

    Notes
    -----
    Processes are spawned: a script that uses more than one keeps its work under ``if __name__ == "__main__":``.
    """

    def __init__(self, *, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise ParameterError(f"workers is {workers}; there must be at least one.")
        self._workers = workers or cpu_count()
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, tuple[_Worker, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker, _ in self._busy.values():
            worker.process.kill()
        everybody = [*self._idle, *(worker for worker, _ in self._busy.values())]
        for worker in everybody:
            worker.line.close()
        for worker in everybody:
            worker.process.join(PATIENCE)
            worker.process.kill()
            worker.process.join()
        self._idle, self._busy = [], {}

    def map(self, function: Callable[[Any], Any], jobs: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield (index, result) as they come."""
        if self._workers == 1 or len(jobs) < 2:
            yield from ((i, function(job)) for i, job in enumerate(jobs))
            return
        todo, tries = deque(range(len(jobs))), [0] * len(jobs)
        while todo or self._busy:
            while todo and len(self._busy) < self._workers:
                self._give(todo.popleft(), function, jobs)
            for line in cast("list[Connection]", wait(list(self._busy))):
                worker, i = self._busy.pop(line)
                try:
                    result = line.recv()
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

    def _give(self, i: int, function: Callable[[Any], Any], jobs: Sequence[Any]) -> None:
        worker = self._idle.pop() if self._idle else _started()
        self._busy[worker.line] = worker, i
        with suppress(ConnectionError):  # where it died before it was asked, the closed line tells `map`
            worker.line.send((function, jobs[i]))


def _reason(exitcode: int | None) -> str:
    # what Python leaves with when the script that is imported by a worker starts workers itself
    hint = "; does the script start its work outside of if __name__ == '__main__'" if exitcode == 1 else ""
    return f"exit code {exitcode}{hint}"


def _started() -> _Worker:
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
    """Let a process that starts here be deaf to Ctrl-C from its birth: it imports for seconds before it can say so.

    Ctrl-C is held back until the process has all it needs to start: another thread may take the signal, and Python
    would then stop this one in the middle.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    waiting: list[Any] = []
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda *call: waiting.append(call)) if main else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if main:
            signal.signal(signal.SIGINT, handler)
        if waiting and callable(handler):
            handler(*waiting[0])


def _work(line: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends its workers
    try:
        while True:
            function, job = line.recv()
            line.send(function(job))
    except (EOFError, ConnectionError):
        return  # the driver is gone, or has closed the line
