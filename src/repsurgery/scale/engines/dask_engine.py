"""`DaskEngine`: Dask futures, on a cluster or on local processes."""

import logging
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from types import TracebackType
from typing import Any, Self

from joblib import cpu_count

from repsurgery.errors import EngineError, EngineWarning, MissingExtraError
from repsurgery.scale.engines.addresses import DASK, SECONDS, require_reachable
from repsurgery.scale.engines.base import RETRIES, check_workers, lost

__all__ = ["DaskEngine"]


class DaskEngine:
    """Runs jobs as Dask futures.

    Parameters
    ----------
    workers : int or None
        Processes of a cluster started on this machine; None: one per core. Ignored for a cluster with an address.
    address : str or None
        Address of a scheduler, as ``tcp://host:port`` or ``host:port``; None: start a cluster on this machine.
    """

    def __init__(self, *, workers: int | None = None, address: str | None = None) -> None:
        self._workers, self._address = check_workers(workers), address
        self._open = ExitStack()

    def __enter__(self) -> Self:
        try:
            from dask import config, distributed
        except ImportError as error:
            raise MissingExtraError("The engine dask needs Dask: pip install 'repsurgery[distributed]'") from error
        self._distributed: Any = distributed
        self._open.enter_context(config.set({"distributed.scheduler.allowed-failures": RETRIES}))
        if self._address is not None:
            require_reachable(self._address, DASK)
            self._client = self._open.enter_context(self._connect(self._address))
            if not self._client.scheduler_info()["workers"]:
                # not an error: an adaptive cluster starts workers when there is work
                text = f"The scheduler at {self._address} has no workers yet; the work begins when one joins."
                warnings.warn(text, EngineWarning, stacklevel=2)
            return self
        try:
            self._start()
        except BaseException:
            self._open.close()
            raise
        return self

    def _start(self) -> None:
        with _interrupts_held():  # the driver stops its workers
            cluster = self._distributed.LocalCluster(
                n_workers=self._workers or cpu_count(),
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )
            self._open.enter_context(cluster)
        self._client = self._open.enter_context(self._distributed.Client(cluster))

    def _connect(self, address: str) -> Any:
        try:
            return self._distributed.Client(address, timeout=SECONDS)
        except (OSError, ValueError) as error:
            raise EngineError(f"Dask at {address} does not answer ({error}). Is it a scheduler?") from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def map(self, function: Callable[[Any], Any], jobs: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield (index, result) in order of completion."""
        # not pure: an equal job of a later call must run again, because files change
        futures = self._client.map(function, jobs, pure=False, retries=RETRIES, batch_size=1000)
        index = {future.key: i for i, future in enumerate(futures)}
        for future in self._distributed.as_completed(futures):
            yield index[future.key], self._result(future)
            future.release()

    def _result(self, future: Any) -> Any:
        gone = "The Dask cluster is gone. Finished work is kept: start the cluster, and run again."
        if self._client.status != "running":
            raise EngineError(gone)
        if future.status != "finished":
            return lost(type(future.exception()).__name__)
        try:
            return future.result()
        except OSError as error:
            # jobs do not raise, so the connection to the scheduler failed
            raise EngineError(gone) from error


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delay Ctrl-C until the block ends; threads and processes started in the block never receive it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # the first worker would start it and unblock signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
