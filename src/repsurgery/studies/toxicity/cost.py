"""What a row of the table costs: a token in units of the base's, training, and peak memory.

The base writes beside every row, so that other load on the machine affects both; ratios of CPU times hardly feel it.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from repsurgery.checkpoint import Journal, digest, journal_of
from repsurgery.lm.batching.batches import entry_device
from repsurgery.progress import progress_bar
from repsurgery.studies.toxicity.generators import TextGenerator, sample_seeds
from repsurgery.studies.toxicity.peak_memory import peak_memory, reset_peak_memory

__all__ = ["Spent", "measured_cost", "measured_rows", "trained"]

SAMPLES = 5
"""Continuations of one prompt that are written in each round."""
SLOW = 20.0
"""A row whose first round takes more seconds than this is measured by that round; otherwise it serves as warm-up."""
TRAINING, WRITING = "training", "writing"
"""The entries of a row's journal; that of writing also names what decides how it is measured."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a configuration costs: three figures as in `Configured`, and the facts of its trained parts.

    ``peak_bytes_base`` is the peak of the base that wrote beside it in the same process.
    """

    cost_per_token: float | None = None
    training_seconds: float | None = None
    peak_bytes: int | None = None
    peak_bytes_base: int | None = None
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Round:
    """One round of writing: seconds, tokens, and the peak of the memory."""

    seconds: float
    tokens: float
    peak: int | None

    @property
    def per_token(self) -> float:
        return self.seconds / max(self.tokens, 1)


def trained(generator: TextGenerator, folder: Path, *, needed: bool, progress: bool) -> Spent:
    """Return what the parts of a generator cost; unless an earlier run noted it, or if they are needed, prepare it."""
    journal = _journal(generator, folder)
    if needed or TRAINING not in journal:
        generator.prepare(progress=progress)
        figures = [generator.training_seconds, {name: dict(facts) for name, facts in generator.part_facts().items()}]
        if journal.get(TRAINING) != figures:
            journal.note({TRAINING: figures})
    seconds, parts = journal[TRAINING]
    return Spent(training_seconds=seconds, parts=parts)


def measured_rows(
    rows: Mapping[str, Spent],
    generator: Callable[[str], TextGenerator],
    prompt: str,
    *,
    base: str,
    rounds: int,
    folder: Path,
    progress: bool,
) -> dict[str, Spent]:
    """Return ``rows`` with what `measured_cost` finds of each name's generator; 0 rounds measure nothing."""
    if not rounds:
        return {name: replace(one, cost_per_token=None) for name, one in rows.items()}
    measured: dict[str, Spent] = {}
    how: dict[str, Any] = {"rounds": rounds, "folder": folder, "progress": progress}
    with progress_bar("costs measured", len(rows), show=progress) as advance:
        for name, one in rows.items():
            cost, peak, base_peak = measured_cost(generator(name), lambda: generator(base), prompt, **how)
            cost = one.cost_per_token or cost
            measured[name] = replace(one, cost_per_token=cost, peak_bytes=peak, peak_bytes_base=base_peak)
            advance(1)
    return measured


def measured_cost(
    generator: TextGenerator,
    base: Callable[[], TextGenerator],
    prompt: str,
    *,
    rounds: int,
    folder: Path,
    progress: bool = False,
) -> tuple[float, int | None, int | None]:
    """Return the cost of a new token relative to the base, and the peak memories of both; stored figures are reused.

    Generator and base write `SAMPLES` continuations of ``prompt`` in turn. The ratio is the median over ``rounds``
    of the rounds' ratios of seconds per written token. No other thread should compute meanwhile. The peak of the base
    is taken before the generator's parts are in memory.

    Guarantees
    ----------
    A resumed study keeps the figures (test_a_resumed_study_keeps_its_costs).
    A generator that does everything twice costs twice as much (test_the_cost_is_relative_to_the_base).
    Other rounds or another prompt are measured anew (test_other_rounds_or_another_prompt_are_measured_anew).
    """
    journal, entry = _journal(generator, folder), f"{WRITING} {digest(prompt, rounds, SAMPLES)[:16]}"
    if entry not in journal:
        journal.note({entry: _compared(generator, base(), prompt, rounds, progress=progress)})
    cost, peak, base_peak = journal[entry]
    return cost, peak, base_peak


def _journal(generator: TextGenerator, folder: Path) -> Journal:
    return journal_of(folder, "cost", generator.identity)


def _compared(
    generator: TextGenerator, base: TextGenerator, prompt: str, rounds: int, *, progress: bool
) -> tuple[float, int | None, int | None]:
    seeds = sample_seeds(generator.context.spec.seed, SAMPLES)

    def both() -> tuple[_Round, _Round]:
        return _round(base, prompt, seeds), _round(generator, prompt, seeds)

    alone = _round(base, prompt, seeds)
    generator.prepare(progress=progress)
    pairs = [(alone, _round(generator, prompt, seeds))]
    if pairs[0][1].seconds <= SLOW:
        pairs = [both() for _ in range(rounds)]
    ratios = [one.per_token / reference.per_token for reference, one in pairs]
    peaks = [one.peak for _, one in pairs if one.peak is not None]
    return round(statistics.median(ratios), 4), max(peaks, default=None), alone.peak


def _round(generator: TextGenerator, prompt: str, seeds: Sequence[int]) -> _Round:
    device, written = entry_device(generator.context.model), generator.cost.tokens_written
    reset_peak_memory(device)
    start = _seconds(device)
    (row,) = generator.generate([prompt], seeds)
    seconds = _seconds(device) - start
    # a generator that does not count its tokens returns them
    tokens = generator.cost.tokens_written - written or sum(len(c.tokens) + c.finished for c in row)
    return _Round(seconds, tokens, peak_memory(device))


def _seconds(device: torch.device) -> float:
    """Return the CPU time of this process; on an accelerator, which works on its own, the elapsed time."""
    if device.type == "cpu":
        return time.process_time()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
