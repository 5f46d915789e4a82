"""A look at a cluster's address before its client, which may wait without end, is sent there."""

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass

from repsurgery.errors import EngineError

__all__ = ["DASK", "RAY", "SECONDS", "Protocol", "require_reachable"]

SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a client says first, and whether the first bytes of an answer are those of a server of its kind."""

    engine: str
    hello: bytes
    knows: Callable[[bytes], bool]


# a gRPC client opens with the preface of HTTP/2 and empty settings; a server answers with settings, frames of type 4
RAY = Protocol("Ray", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0", lambda got: got[3:4] == b"\4")
# a scheduler speaks first: the length of its greeting, in eight bytes
DASK = Protocol("Dask", b"", lambda got: len(got) >= 8 and int.from_bytes(got[:8], "little") < 2**20)


def require_reachable(address: str, protocol: Protocol) -> None:
    """Raise an `EngineError` within seconds unless a server listens at ``address`` and speaks ``protocol``.

    The address is ``host:port`` with any scheme before it; what is encrypted is only knocked at.
    """
    engine = protocol.engine
    found = re.fullmatch(r"(?:(?P<scheme>\w+)://)?\[?(?P<host>[^\]]+?)\]?:(?P<port>\d+)/?", address)
    if found is None:
        raise EngineError(f"{address} is no address of a {engine} cluster; it is written host:port.")
    try:
        with socket.create_connection((found["host"], int(found["port"])), timeout=SECONDS) as line:
            if found["scheme"] not in ("tls", "ws", "wss"):
                line.sendall(protocol.hello)
                if not protocol.knows(line.recv(64)):
                    raise ConnectionError("what listens there is something else")
    except (OSError, OverflowError) as error:
        raise EngineError(
            f"There is no {engine} cluster at {address} ({error}). Start it, or correct the address; "
            "what is finished is kept."
        ) from error
