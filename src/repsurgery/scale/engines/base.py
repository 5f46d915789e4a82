"""The protocol of engines, which run one function on many jobs and survive the death of a worker."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from repsurgery.errors import ParameterError

__all__ = ["RETRIES", "Engine", "Failure", "check_workers", "lost"]

RETRIES = 2
"""How many times a job whose worker died is given to another worker."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a job failed; ``hopeless`` where all other jobs will fail for the same reason."""

    message: str
    hopeless: bool = False


class Engine(Protocol):
    """Runs a function on jobs, wherever its workers are; a context manager, because workers must be released.

    The function returns a `Failure` instead of raising, so an engine handles only its own errors.
    """

    def __enter__(self) -> Self:
        """Start the workers or connect to them."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release them."""
        ...

    def map(self, function: Callable[[Any], Any], jobs: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield (index of the job, result) in order of completion; a `Failure` after `RETRIES` + 1 dead workers."""
        ...


def check_workers(workers: int | None) -> int | None:
    """Return ``workers``; raise a `ParameterError` unless it is None or at least 1."""
    if workers is not None and workers < 1:
        raise ParameterError(f"workers is {workers}; there must be at least one.")
    return workers


def lost(why: object) -> Failure:
    """Return the failure of a job whose workers all died."""
    return Failure(f"its worker died {RETRIES + 1} times ({why}); is the memory of the workers large enough?")
