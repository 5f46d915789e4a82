"""A look at a cluster's address before its client is given minutes to give up."""

import re
import socket

from repsurgery.errors import EngineError

__all__ = ["require_reachable"]

SECONDS = 5.0


def require_reachable(address: str, *, engine: str) -> None:
    """Raise an `EngineError` unless something listens at ``address`` (``host:port``, with any scheme before it)."""
    found = re.fullmatch(r"(?:\w+://)?\[?(?P<host>[^\]]+?)\]?:(?P<port>\d+)/?", address)
    if found is None:
        raise EngineError(f"{address} is no address of a {engine} cluster; it is written host:port.")
    try:
        socket.create_connection((found["host"], int(found["port"])), timeout=SECONDS).close()
    except (OSError, OverflowError) as error:
        raise EngineError(
            f"There is no {engine} cluster at {address} ({error}). Start it, or correct the address; "
            "what is finished is kept."
        ) from error
