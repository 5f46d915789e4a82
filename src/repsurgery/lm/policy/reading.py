"""Class moments of the steps of generations at several sites, from one pass, resumable without a trace."""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from repsurgery.checkpoint import SAVE_SECONDS, recall, uninterrupted
from repsurgery.errors import CacheWarning, ShapeError
from repsurgery.files import Contents, built_from, read_file, write_file
from repsurgery.lm.batching.batches import evaluating, run_batches, sorted_batches
from repsurgery.lm.batching.tokens import Tokens
from repsurgery.lm.generate.generate import prompt_lengths
from repsurgery.lm.policy.credit import CLASSES, Codes
from repsurgery.lm.read.states import Reader
from repsurgery.moments import ClassMoments
from repsurgery.progress import progress_bar

__all__ = ["BLOCK_STEPS", "read_steps"]

KIND = "on-policy-progress"
BLOCK_STEPS = 2048
"""Steps that are read, approximately, before they are added to the sums."""

Sums = dict[str, ClassMoments]


def read_steps(
    read: Reader,
    model: nn.Module,
    tokens: Sequence[Tokens],
    steps: Sequence[slice],
    codes: Sequence[Codes],
    sites: Sequence[str],
    *,
    batch_size: int,
    progress: bool,
    folder: Path | None,
) -> Sums:
    """Return the moments at each site of the steps that have a class.

    Texts are read in blocks whose borders depend on the arguments alone, and the sums are stored at such borders. A
    resumed job therefore computes the same numbers, bit for bit, whenever it was interrupted.

    Parameters
    ----------
    read : Reader
        With hooks on ``sites`` and pooling "all".
    tokens, steps : sequences of n
        See `predicting_positions`.
    codes : sequence of n arrays
        The class of each step.
    folder : path or None
        It belongs to exactly these arguments; None stores nothing.
    """
    blocks = list(_blocks(sorted_batches([len(row) for row in tokens], batch_size), steps))
    store = _Store(folder, sites, len(blocks))
    done, sums = store.recall()
    finished = sum(len(batch) for block in blocks[:done] for batch in block)
    show = progress and done < len(blocks)
    with evaluating(model), progress_bar("reading", len(tokens), show=show, done=finished) as advance:
        try:
            for block in blocks[done:]:
                added = _read_block(block, read, tokens, steps, codes)
                with uninterrupted():
                    sums = {site: sums[site] + new if site in sums else new for site, new in added.items()}
                    done += 1
                    store.save_sometimes(done, sums)
                advance(sum(map(len, block)))
        finally:
            store.save(done, sums)
    return sums


def _blocks(batches: list[list[int]], steps: Sequence[slice]) -> Iterator[list[list[int]]]:
    block: list[list[int]] = []
    size = 0
    for batch in batches:
        block.append(batch)
        size += sum(steps[i].stop - steps[i].start for i in batch)
        if size >= BLOCK_STEPS:
            yield block
            block, size = [], 0
    if block:
        yield block


def _read_block(
    block: list[list[int]], read: Reader, tokens: Sequence[Tokens], steps: Sequence[slice], codes: Sequence[Codes]
) -> Sums:
    rows: dict[str, list[NDArray[np.float32]]] = {}
    order: list[int] = []
    prompts = prompt_lengths(steps)

    def run(batch: list[int]) -> None:
        for site, states in read([tokens[i] for i in batch], prompts=[prompts[i] for i in batch]).items():
            texts = np.split(states, np.cumsum([len(tokens[i]) for i in batch])[:-1])
            rows.setdefault(site, []).extend(
                text[steps[i]][codes[i] >= 0] for i, text in zip(batch, texts, strict=True)
            )
        order.extend(batch)

    run_batches(block, run, progress=False, label="reading")
    labels = [np.array(CLASSES)[codes[i][codes[i] >= 0]] for i in order]
    return {site: _moments(parts, labels) for site, parts in rows.items()}


def _moments(rows: list[NDArray[np.float32]], labels: list[NDArray[Any]]) -> ClassMoments:
    """Return the moments of the ``rows`` of some texts by their ``labels``; the rows of one text are one group."""
    groups = np.repeat(np.arange(len(rows)), [len(text) for text in rows])
    return ClassMoments.of(np.concatenate(rows), np.concatenate(labels), groups=groups)


class _Store:
    """The sums after some blocks, in files of a folder where there is one."""

    def __init__(self, folder: Path | None, sites: Sequence[str], blocks: int) -> None:
        self._folder, self._sites, self._blocks = folder, list(sites), blocks
        self._saved = 0
        self._save_at = time.monotonic() + SAVE_SECONDS

    def recall(self) -> tuple[int, Sums]:
        """Return how many blocks an earlier run finished, and their sums."""
        if self._folder is None:
            return 0, {}
        progress, damage = recall(self._folder / "progress.safetensors", self._load)
        if damage is not None:
            warnings.warn(f"The texts are read anew: {damage}", CacheWarning, stacklevel=4)
        self._saved, sums = progress or (0, {})
        return self._saved, sums

    def save_sometimes(self, done: int, sums: Mapping[str, ClassMoments]) -> None:
        """Save if the last time was long ago."""
        if time.monotonic() > self._save_at:
            self.save(done, sums)

    def save(self, done: int, sums: Mapping[str, ClassMoments]) -> None:
        """Write the sums of each site, then the record that makes them valid, then delete the older ones."""
        if self._folder is None or done == self._saved:
            return
        with uninterrupted():
            for i, site in enumerate(self._sites):
                sums[site].save(self._site_file(i, done))
            write_file(self._folder / "progress.safetensors", Contents(KIND, {"blocks": done}, {}))
            for i in range(len(self._sites)):
                self._site_file(i, self._saved).unlink(missing_ok=True)
            self._saved, self._save_at = done, time.monotonic() + SAVE_SECONDS

    def _site_file(self, i: int, done: int) -> Path:
        assert self._folder is not None
        return self._folder / f"site-{i}-{done}.safetensors"

    def _load(self, path: Path) -> tuple[int, Sums]:
        done = read_file(path, kind=KIND).header.get("blocks")
        with built_from("the progress of these texts"):
            if type(done) is not int or not 0 < done <= self._blocks:
                raise ShapeError(f"It counts {done!r} blocks of {self._blocks}.")
        return done, {site: ClassMoments.load(self._site_file(i, done)) for i, site in enumerate(self._sites)}
