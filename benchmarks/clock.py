"""Interleaved CPU time: every candidate once per round, so that a busy neighbour slows all of them alike."""

import gc
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

__all__ = ["Timings", "interleaved"]


@dataclass(frozen=True, slots=True)
class Timings:
    """CPU seconds of each candidate by round, and what each returned last."""

    seconds: Mapping[str, list[float]]
    results: Mapping[str, Any]

    def of(self, name: str) -> float:
        """Return the median CPU seconds."""
        return median(self.seconds[name])

    def ratio(self, slow: str, fast: str) -> float:
        """Return how many times longer ``slow`` takes than ``fast``, by medians."""
        return self.of(slow) / self.of(fast)

    def paired(self, slow: str, fast: str) -> float:
        """Return the median of the ratios of the single rounds: what both met in a round cancels."""
        return median(a / b for a, b in zip(self.seconds[slow], self.seconds[fast], strict=True))

    def spread(self, slow: str, fast: str) -> str:
        """Return the ratios of the single rounds, lowest and highest."""
        ratios = [a / b for a, b in zip(self.seconds[slow], self.seconds[fast], strict=True)]
        return f"rounds {min(ratios):.2f}-{max(ratios):.2f}"


def interleaved(candidates: Mapping[str, Callable[[], Any]], *, rounds: int, shuffled: bool = False) -> Timings:
    """Run each candidate once per round, in turning or in shuffled order."""
    names = list(candidates)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    results: dict[str, Any] = {}
    dice = random.Random(0)
    for i in range(rounds):
        turned = names[i % len(names) :] + names[: i % len(names)]
        for name in dice.sample(names, len(names)) if shuffled else turned:
            results.pop(name, None)
            gc.collect()
            start = time.process_time()
            results[name] = candidates[name]()
            seconds[name].append(time.process_time() - start)
    return Timings(seconds, results)
