"""`RayEngine`: Ray tasks, on a cluster or on this machine."""

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from repsurgery.errors import EngineError, EngineWarning, MissingExtraError
from repsurgery.scale.engines.addresses import RAY, require_reachable
from repsurgery.scale.engines.base import RETRIES, check_workers, lost

__all__ = ["RayEngine"]


class RayEngine:
    """Runs jobs as Ray tasks of one core each.

    Parameters
    ----------
    workers : int or None
        Number of tasks at a time; None: one per core of the cluster.
    address : str or None
        ``host:port`` of a cluster, ``ray://host:port`` of its client server, or ``"auto"``. None: the Ray that this
        process is already connected to, else a new local one that ends with the engine.
    """

    def __init__(self, *, workers: int | None = None, address: str | None = None) -> None:
        self._workers, self._address = check_workers(workers), address
        self._started = False

    def __enter__(self) -> Self:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray sends no usage statistics
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the announced future default of Ray
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError("The engine ray needs Ray: pip install 'repsurgery[distributed]'") from error
        self._ray = ray
        if not ray.is_initialized():
            self._connect()
        elif self._address is not None:
            raise EngineError("This process is connected to a Ray already. Omit the address to use it.")
        return self

    def _connect(self) -> None:
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if self._address is None:
            # a new local Ray, even where RAY_ADDRESS names a cluster
            self._ray.init(address="local", num_cpus=self._workers, include_dashboard=False, **quiet)
        else:
            if self._address != "auto" and os.environ.get("RAY_USE_TLS", "0") == "0":
                require_reachable(self._address, RAY)
            try:
                self._ray.init(address=self._address, **quiet)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise EngineError(f"Ray at {self._address} does not answer ({error}). Is it a Ray cluster?") from error
        self._started = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._started:
            self._ray.shutdown()

    def map(self, function: Callable[[Any], Any], jobs: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield (index, result) in order of completion."""
        ray = self._ray
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(function)
        cores = int(ray.cluster_resources().get("CPU", 0))
        if cores < 1:
            # not an error: an autoscaling cluster starts nodes when there is work
            warnings.warn(
                "This Ray cluster has no cores yet; the work begins when a node joins.", EngineWarning, stacklevel=2
            )
        at_a_time = self._workers or max(1, cores)
        remaining = iter(enumerate(jobs))
        running: dict[Any, int] = {}
        while True:
            for i, job in remaining:
                running[task.remote(job)] = i
                if len(running) >= at_a_time:
                    break
            if not running:
                return
            done, _ = ray.wait(list(running), num_returns=1)
            i = running.pop(done[0])
            try:
                result = ray.get(done[0])
            except (ray.exceptions.LocalRayletDiedError, ray.exceptions.RaySystemError) as error:
                raise EngineError(
                    "The Ray cluster is gone. Finished work is kept: start the cluster, and run again."
                ) from error
            except ray.exceptions.RayError as error:
                result = lost(type(error).__name__)
            yield i, result
