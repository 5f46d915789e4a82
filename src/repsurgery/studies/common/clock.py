"""`Clock`: says what begins, and notes how long it took."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Announce", "Clock"]

Announce = Callable[[str], None]
"""A function that is told what begins."""


class Clock:
    """Announces steps and notes how long each took, in ``seconds``."""

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
