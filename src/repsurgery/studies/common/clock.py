"""`Clock`: announces the steps of a run and measures how long each takes."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Announce", "Clock"]

Announce = Callable[[str], None]
"""A function that is called with the name of a step when the step begins."""


class Clock:
    """Announces steps and stores the duration of each in ``seconds``."""

    def __init__(self, announce: Announce) -> None:
        self._announce = announce
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block."""
        self._announce(name)
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 1)
