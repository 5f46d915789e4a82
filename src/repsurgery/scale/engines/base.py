"""What an engine is: something that runs one function on many jobs and survives the death of a worker."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

__all__ = ["RETRIES", "Engine", "Failure", "lost"]

RETRIES = 2
"""A job whose worker dies is given to another so many times."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that could not be done, in words; ``hopeless`` where the other jobs will meet the same fate."""

    message: str
    hopeless: bool = False


class Engine(Protocol):
    """Runs a function on jobs, wherever its workers are; a context manager, because workers must be let go.

    The function returns a `Failure` rather than raising, so an engine has only its own faults to deal with.
    """

    def __enter__(self) -> Self:
        """Start or reach the workers."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let them go."""
        ...

    def map(self, function: Callable[[Any], Any], jobs: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield (index of the job, result) as they come; a `Failure` where workers died `RETRIES` + 1 times."""
        ...


def lost(why: object) -> Failure:
    """Return the failure of a job that took every worker down with it."""
    return Failure(f"its worker died {RETRIES + 1} times ({why}); is the memory of the workers large enough?")
