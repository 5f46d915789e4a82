"""The bounds that keep a server within its means, whatever its clients send."""

from dataclasses import dataclass, fields

from repsurgery.errors import ParameterError

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on the work of a server; every one is a positive number.

    Attributes
    ----------
    max_batch : int
        Rows that are generated together. A request for n choices of k prompts takes n k rows.
    max_queue : int
        Rows that wait for room in the batch. A request that does not fit is refused with status 429.
    max_new_tokens : int
        The longest answer, in tokens. A request for a longer one is refused, not shortened.
    max_body_bytes : int
        The largest request body; larger ones are refused with status 413.
    request_seconds : float
        The longest time from the arrival of a request to its last token.
    shutdown_seconds : float
        How long running requests may go on after the server was asked to stop.
    max_unread : int
        Events that wait for a client that does not read its stream; beyond that the request is ended.
    """

    max_batch: int = 16
    max_queue: int = 128
    max_new_tokens: int = 1024
    max_body_bytes: int = 1 << 20
    request_seconds: float = 300.0
    shutdown_seconds: float = 20.0
    max_unread: int = 1024

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value < float("inf"):
                raise ParameterError(f"{field.name} is {value!r}; it must be a positive number.")
