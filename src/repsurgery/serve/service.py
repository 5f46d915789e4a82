"""A served model from loading to shutdown: what the routes ask and the server starts and stops."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

from repsurgery.errors import ParameterError
from repsurgery.serve.engines import ENGINES, ServerEngine, lacking
from repsurgery.serve.intake import Intake, Prepared
from repsurgery.serve.job import Job
from repsurgery.serve.limits import Limits
from repsurgery.serve.metrics import Metrics
from repsurgery.serve.refusals import not_ready, stopping
from repsurgery.serve.schema import ChatRequest, CompletionRequest
from repsurgery.serve.sources import Sources
from repsurgery.serve.steerings import Steerings

__all__ = ["Service"]

log = logging.getLogger(__name__)


class Service:
    """One model, its steerings and its engine.

    Parameters
    ----------
    load : function
        Returns the model and its tokenizer; called by a thread of its own, so that the port answers meanwhile.
    name : str
        The name under which the model is served.
    sources : Sources
    limits : Limits
    engine : str
        A name in `ENGINES`.
    """

    def __init__(
        self,
        load: Callable[[], tuple[Any, Any]],
        name: str,
        sources: Sources | None = None,
        limits: Limits | None = None,
        *,
        engine: str = "transformers",
    ) -> None:
        self.name = name
        self.limits = limits or Limits()
        self.metrics = Metrics()
        self.created = int(time.time())
        self.failure: BaseException | None = None
        self._load, self._sources = load, sources or Sources()
        self._phase: Literal["loading", "ready", "stopping"] = "loading"
        self._engine_name, self._make_engine = engine, ENGINES[engine]
        self._engine: ServerEngine | None = None
        self._intake: Intake | None = None
        self._steerings: Steerings | None = None
        self._loader = threading.Thread(target=self._start, name="repsurgery-loader", daemon=True)

    def start(self) -> None:
        """Begin to load the model."""
        self._loader.start()

    def _start(self) -> None:
        try:
            model, tokenizer = self._load()
            self._steerings = Steerings(model, self._sources)
            self._intake = Intake(model, tokenizer, self.name, self._steerings, self.limits)
            engine = self._make_engine(model, tokenizer, self.limits, self.metrics)
            self._require_protocol(engine)
        except BaseException as error:  # the server ends, and the main thread reports it
            self.failure = error
            return
        engine.start()
        self._engine = engine
        if self._phase == "loading":
            self._phase = "ready"
            log.info("%s is ready; steerings: %s.", self.name, ", ".join(self._steerings.names()) or "none")

    def _require_protocol(self, engine: ServerEngine) -> None:
        if missing := lacking(engine):
            problem = f"its engine has no {', '.join(missing)}"
            ENGINES.warn_of(self._engine_name, problem)
            raise ParameterError(f"engine is {self._engine_name!r}; it cannot be used: {problem}. Choose another one.")

    @property
    def phase(self) -> str:
        """``loading``, ``ready``, ``failing`` or ``stopping``."""
        failing = self._phase == "ready" and self._engine is not None and self._engine.failing
        return "failing" if failing else self._phase

    @property
    def loading(self) -> bool:
        """Whether the thread that loads the model still runs."""
        return self._loader.is_alive()

    @property
    def busy(self) -> bool:
        """Whether any request waits or runs."""
        return self._engine is not None and self._engine.busy

    async def steering_names(self) -> list[str]:
        """Return the names of the steerings."""
        if self._steerings is None:
            raise not_ready()
        return await asyncio.to_thread(self._steerings.names)

    async def prepare(self, request: CompletionRequest | ChatRequest) -> Prepared:
        """Return the request ready to begin, or raise a `Refusal`."""
        if self._phase == "stopping":
            raise stopping()
        if self._phase == "loading" or self._intake is None:
            raise not_ready()
        return await asyncio.to_thread(self._intake.prepare, request)

    def begin(self, prepared: Prepared, *, stream: bool) -> Job:
        """Return the running job of a request, or raise a `Refusal`."""
        if self._engine is None:
            raise not_ready()
        deadline = time.monotonic() + self.limits.request_seconds
        job = Job(prepared.specs, stream, deadline, self.limits.max_unread)
        self._engine.submit(job)
        self.metrics.accepted(prepared.steerings, prepared.prompt_tokens)
        return job

    def close(self) -> None:
        """Refuse new requests; running ones go on."""
        self._phase = "stopping"
        if self._engine is not None:
            self._engine.close()

    def stop(self) -> None:
        """End everything that still runs."""
        self.close()
        if self._engine is not None:
            self._engine.stop()
