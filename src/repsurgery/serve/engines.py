"""`ServerEngine`: what writes the answers of the server. `ENGINES`: ours and those of plugins, by name."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from repsurgery.registry import Registry

if TYPE_CHECKING:
    from repsurgery.serve.job import Job
    from repsurgery.serve.limits import Limits
    from repsurgery.serve.metrics import Metrics

__all__ = ["ENGINES", "MakeEngine", "ServerEngine", "lacking"]

_MEMBERS = ("start", "submit", "busy", "failing", "close", "stop")


class ServerEngine(Protocol):
    """Writes the answers to the requests of the server, each with its own steering.

    Its methods are called by the threads of the server; none of them may wait for an answer to be written. A job holds
    one `RowSpec` per choice (prompt, plan of steering, noise, limits) and takes its pieces by ``job.put(Piece(...))``,
    of which the last of each choice has a finish reason; ``job.fail(Refusal(...))`` ends it with an error. A job that
    says ``job.ended`` has lost its client, and nothing more is written for it.
    """

    def start(self) -> None:
        """Begin to work; called once, before the first request."""
        ...

    def submit(self, job: "Job") -> None:
        """Accept a request, or raise a `Refusal`: too many wait (429), or the engine is closed (503)."""
        ...

    @property
    def busy(self) -> bool:
        """Whether any request waits or runs."""
        ...

    @property
    def failing(self) -> bool:
        """Whether the engine cannot write at the moment; requests are still tried."""
        ...

    def close(self) -> None:
        """Refuse new requests; those that were accepted go on."""
        ...

    def stop(self) -> None:
        """End every request with an event that says so, and free what the engine holds."""
        ...


MakeEngine: TypeAlias = "Callable[[Any, Any, Limits, Metrics], ServerEngine]"
"""What is registered: a class or function of model, tokenizer, limits and metrics. Its error ends the server."""


def lacking(engine: Any) -> list[str]:
    """Return the members of the protocol that an engine, or its class, does not have."""
    return [name for name in _MEMBERS if not hasattr(engine, name)]


ENGINES: Registry[MakeEngine] = Registry(
    "engine",
    own={"transformers": "repsurgery.serve.engine:Engine"},
    group="repsurgery.engines",
    needs=f"a function, or a class with {', '.join(_MEMBERS)}",
    accepts=lambda value: callable(value) and not (isinstance(value, type) and lacking(value)),
)
