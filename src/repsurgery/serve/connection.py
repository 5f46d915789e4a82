"""A connection to the server, which must send its request soon, and makes room when there are too many."""

import asyncio

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from repsurgery.serve.guard import refused
from repsurgery.serve.refusals import Refusal

__all__ = ["Connection"]

MAX_CONNECTIONS = 512
"""Open connections; each costs a file descriptor and some buffers."""
HEAD_SECONDS = 20.0
"""How long a connection may take to send the head of its request."""


class Connection(H11Protocol):
    """uvicorn's connection with a time limit until the head of each request is there.

    Guarantees
    ----------
    Connections that send nothing, or their head slowly, are closed, and lock nobody out meanwhile
    (test_idle_connections_lock_nobody_out, test_a_connection_that_sends_no_request_is_closed).
    When every connection has a request, a further one is refused in OpenAI's form
    (test_beyond_the_limit_of_connections_requests_are_refused).
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; where there are too many connections, close one that has none."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            idle = [one for one in self.connections if one is not self and isinstance(one, Connection) and one.waiting]
            if idle:
                min(idle, key=lambda one: one.since).transport.abort()
            else:
                self.app = _too_many
        self._wait()

    @property
    def waiting(self) -> bool:
        """Whether the connection is open and has no request at work."""
        return not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self.since = self.loop.time()
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if self.waiting:
            self.transport.abort()


async def _too_many(scope: Scope, receive: Receive, send: Send) -> None:
    message = f"The server has {MAX_CONNECTIONS} connections already. Try again later."
    refusal = Refusal(503, message, kind="server_error", code="too_many_connections", retry_after=1)
    response = refused(refusal)
    response.headers["Connection"] = "close"
    await response(scope, receive, send)
