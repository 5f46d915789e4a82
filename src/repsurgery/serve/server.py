"""The server process: its socket, its signals, and a shutdown that lets running requests finish."""

import asyncio
import contextlib
import logging
import signal
import socket
import time
from types import FrameType

import uvicorn

from repsurgery.errors import ParameterError
from repsurgery.serve.app import create_app
from repsurgery.serve.connection import Connection
from repsurgery.serve.service import Service

__all__ = ["Server", "listen"]

log = logging.getLogger(__name__)
UNREAD_SECONDS = 60
"""How long a connection may refuse to take data before the system closes it, where the system can do so."""
FLUSH_SECONDS = 5
"""How long the last events may take to reach their clients."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, or raise an error that says why there is none; port 0 lets the system choose."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, OverflowError) as error:
        raise ParameterError(f"host is {host!r}; it cannot be listened on ({error}). Try 127.0.0.1.") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ParameterError(
            f"port is {port}; the server cannot listen on it at {host} ({error.strerror or error}). Stop what uses "
            "it, or choose another port."
        ) from error
    return listener


class Server(uvicorn.Server):
    """uvicorn, which stops in two steps: first no new requests, then the end of those that still run.

    Parameters
    ----------
    service : Service
    api_key : str or None

    Guarantees
    ----------
    After SIGTERM running streams finish within the allowed time, and later ones end with an event that says why
    (test_sigterm_lets_streams_finish, test_sigterm_ends_long_streams_with_an_event).
    """

    def __init__(self, service: Service, *, api_key: str | None = None) -> None:
        self.service = service
        self.interrupted = False
        self._asked: float | None = None
        config = uvicorn.Config(
            create_app(service, api_key=api_key),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            http=Connection,
            timeout_graceful_shutdown=FLUSH_SECONDS,
        )
        super().__init__(config)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; a second signal stops at once."""
        self.interrupted = self.interrupted or sig == signal.SIGINT
        if self._asked is not None:
            self.should_exit = self.force_exit = True
        self.ask_to_stop()

    def ask_to_stop(self) -> None:
        """Refuse new requests from now on, and stop once the running ones are done."""
        self._asked = self._asked or time.monotonic()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop now; called ten times a second."""
        if await super().on_tick(counter) or self.service.failure is not None:
            return True
        if self._asked is None:
            return False
        self.service.close()
        late = time.monotonic() - self._asked > self.service.limits.shutdown_seconds
        return late or not self.service.busy

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what still runs, and let the last events reach their clients."""
        await asyncio.to_thread(self.service.stop)
        await super().shutdown(sockets)

    def run_on(self, listener: socket.socket) -> None:
        """Serve until a signal, then raise what made the model fail, if it did."""
        self.service.start()
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        log.info("Listening at http://%s:%d while %s is loaded.", shown, port, self.service.name)
        with contextlib.closing(listener):
            self.run(sockets=[listener])
        if self.service.failure is not None:
            raise self.service.failure
