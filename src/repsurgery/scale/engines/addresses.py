"""Check that a cluster answers at its address before a client connects, because clients may wait forever."""

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass

from repsurgery.errors import EngineError

__all__ = ["DASK", "RAY", "SECONDS", "Protocol", "require_reachable"]

SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Protocol:
    """The first bytes that a client sends, and a test of the first bytes that a server of the engine answers."""

    engine: str
    hello: bytes
    accepts: Callable[[bytes], bool]


# a gRPC client opens with the HTTP/2 preface and empty settings; a server answers with settings, a frame of type 4
RAY = Protocol("Ray", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0", lambda reply: reply[3:4] == b"\4")
# a Dask scheduler sends first: the length of its greeting, in eight bytes
DASK = Protocol("Dask", b"", lambda reply: len(reply) >= 8 and int.from_bytes(reply[:8], "little") < 2**20)


def require_reachable(address: str, protocol: Protocol) -> None:
    """Raise an `EngineError` within seconds unless a server of ``protocol`` listens at ``address``.

    The address is ``host:port``, after any scheme. The reply of an encrypted server is not checked.
    """
    engine = protocol.engine
    parts = re.fullmatch(r"(?:(?P<scheme>\w+)://)?\[?(?P<host>[^\]]+?)\]?:(?P<port>\d+)/?", address)
    if parts is None:
        raise EngineError(f"{address} is not the address of a {engine} cluster; an address is written host:port.")
    try:
        with socket.create_connection((parts["host"], int(parts["port"])), timeout=SECONDS) as connection:
            if parts["scheme"] not in ("tls", "ws", "wss"):
                connection.sendall(protocol.hello)
                if not protocol.accepts(connection.recv(64)):
                    raise ConnectionError("another kind of server listens there")
    except (OSError, OverflowError) as error:
        raise EngineError(
            f"There is no {engine} cluster at {address} ({error}). Start it, or correct the address; "
            "finished work is kept."
        ) from error
