"""Fisher matrices of next-token distributions at many sites, from one pass over the texts."""

import hashlib
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from repsurgery.arrays import check_integer
from repsurgery.checkpoint import SAVE_SECONDS, recall, uninterrupted
from repsurgery.errors import CacheWarning, ParameterError, ShapeError
from repsurgery.files import Contents, built_from, read_file, write_file
from repsurgery.lm.batching.tokens import Tokens
from repsurgery.lm.generate.generate import Generation
from repsurgery.lm.price.positions import Reading, Shifted, reading_of
from repsurgery.lm.price.scores import ScoreLayer, ScoreSums
from repsurgery.lm.price.shifts import ShiftedPass, require_decoder, shifted_passes
from repsurgery.lm.read.class_moments import SAVING_SHARE, check_sites
from repsurgery.lm.read.resuming import Results, folder_of, run_missing
from repsurgery.price import Fisher

__all__ = ["fisher"]

KIND = "fisher-progress"
FINAL = "final"
Sums = dict[str, NDArray[np.float64]]
"""``mass`` and ``final``: see `ScoreSums`. Any other site: the sum of outer products of its gradients."""


def fisher(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str] | Sequence[Generation],
    *,
    sites: Sequence[str],
    samples: int = 16,
    seed: int = 0,
    positions: Shifted = "all",
    max_length: int | None = None,
    batch_size: int = 8,
    progress: bool = True,
    work_dir: str | os.PathLike[str] | None = None,
) -> dict[str, Fisher]:
    """Return, per site, the mean Fisher matrix of the next-token distributions along ``texts``.

    Parameters
    ----------
    model, tokenizer
        A transformers decoder and its tokenizer; neither is changed.
    texts : sequence of n strings or of n `Generation`
        Of texts every position counts, the last one included; of generations those from which their tokens were drawn,
        as in `states_along`.
    sites : sequence of str
        All of them are computed in the same pass; see `resolve_site`.
    samples : int
        Tokens drawn per position below "final"; each costs a backward pass. At "final" the matrix is exact.
    seed : int
        The draws depend on the seed and on the tokens of a text, not on its batch.
    positions : {"all", "generated"}
        Which positions are shifted: all of them, as `steer` does by default, or only those from which the tokens of a
        generation were drawn. At "final" it makes no difference.
    max_length, batch_size, progress
        As in `extract`; generations are never truncated.
    work_dir : path or None
        As in `class_moments`: the same call resumes after an interruption.

    Returns
    -------
    dict of site name to Fisher

    Notes
    -----
    At "final", F = Wᵀ diag(mean p) W − mean(m mᵀ) with m = Wᵀp, and with capped logits the same with the derivative of
    the cap. Below, J_t = Σ_{s ≤ t} ∂logits_t/∂h_s is the effect of one shift of all positions. Scores of tokens drawn
    independently at different positions are uncorrelated, so that the outer product of their sum along a text is an
    unbiased estimate of the sum of F over its positions: each draw takes one backward pass.

    Guarantees
    ----------
    Exact at "final", also with capped logits (test_the_matrix_at_final_is_exact).
    Below "final" the expectation is the exact matrix (test_the_sampled_matrix_agrees_with_the_jacobian).
    An interruption loses nothing (test_an_interrupted_fisher_goes_on_where_it_stopped).
    """
    inner = require_decoder(model, caller="fisher")
    names = check_sites(sites, caller="fisher")
    samples = check_integer("samples", samples)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ParameterError(f"seed is {seed!r}; it must be a whole number, so that a run can be repeated.")
    reading = reading_of(inner, tokenizer, texts, max_length=max_length, shifted=positions, caller="fisher")
    below = [name for name in names if name != FINAL]
    layer = ScoreLayer(inner)
    settings = {
        **{"job": "fisher", "sites": names, "samples": samples, "seed": seed, "positions": positions},
        **{"tokens": reading.tokens, "steps": [[step.start, step.stop] for step in reading.steps]},
    }
    sums = _Sums(len(reading.tokens), folder_of(work_dir, model, [], settings))
    with shifted_passes(inner, tokenizer, below, reading) as read:

        def run(batch: list[int]) -> None:
            passed = read(batch)
            added = _outer_products(layer, passed, reading, batch, samples, seed) if below else {}
            if FINAL in names:
                exact = layer.sums(passed.rows())
                added |= {"mass": exact.mass, FINAL: exact.products}
            with uninterrupted():
                sums.take(batch, added)

        run_missing(
            sums, run, inner, list(map(len, reading.tokens)), batch_size=batch_size, progress=progress, label="pricing"
        )
    count = sum(map(reading.count, range(len(reading.tokens))))
    found = {name: Fisher(count, sums.sums[name] / (samples * count), samples, positions) for name in below}
    if FINAL in names:
        found[FINAL] = Fisher(count, layer.fisher(ScoreSums(sums.sums["mass"], sums.sums[FINAL]), count), 0, positions)
    return {name: found[name] for name in names}


def _outer_products(
    layer: ScoreLayer, passed: ShiftedPass, reading: Reading, batch: list[int], samples: int, seed: int
) -> Sums:
    noise = np.concatenate([_uniforms(seed, reading.tokens[i], reading.count(i), samples) for i in batch])
    scores = layer.drawn(passed.rows(), torch.from_numpy(noise))
    found: dict[str, list[torch.Tensor]] = {}
    for draw in range(samples):
        for name, gradient in passed.gradients(scores[:, draw]).items():
            found.setdefault(name, []).append(gradient)
    return {name: _gram(torch.cat(gradients)) for name, gradients in found.items()}


def _gram(rows: torch.Tensor) -> NDArray[np.float64]:
    return np.asarray((rows.T @ rows).numpy())


def _uniforms(seed: int, tokens: Tokens, count: int, samples: int) -> NDArray[np.float64]:
    key = hashlib.sha256(f"{seed}|{tokens}".encode()).digest()
    generator = np.random.Generator(np.random.SFC64(int.from_bytes(key[:16], "big")))
    return generator.random((count, samples))


class _Sums(Results):
    """Sums over the texts that are done, kept in one file of a folder where there is one."""

    def __init__(self, n: int, folder: Path | None) -> None:
        super().__init__(n)
        self.sums: Sums = {}
        self._path = None if folder is None else folder / "progress.safetensors"
        self._saved = 0
        self._save_at = time.monotonic() + SAVE_SECONDS
        if self._path is not None:
            progress, damage = recall(self._path, self._load)
            if progress is not None:
                self._done, self.sums = progress
                self._saved = int(self._done.sum())
            elif damage is not None:
                warnings.warn(f"The texts are read anew: {damage}", CacheWarning, stacklevel=3)

    def take(self, index: list[int], added: Mapping[str, NDArray[np.float64]]) -> None:
        """Add the sums over the texts at ``index``."""
        self.sums = {name: self.sums[name] + part if name in self.sums else part for name, part in added.items()}
        self._done[index] = True
        if time.monotonic() > self._save_at:
            self.save()

    def save(self) -> None:
        """Write the sums, and which texts they are of."""
        count = int(self._done.sum())
        if self._path is None or count == self._saved:
            return
        with uninterrupted():
            start = time.monotonic()
            write_file(self._path, Contents(KIND, {"count": count}, {"done": self._done, **self.sums}))
            self._saved = count
            now = time.monotonic()
            self._save_at = now + max(SAVE_SECONDS, (now - start) / SAVING_SHARE)

    def _load(self, path: Path) -> tuple[NDArray[np.bool_], Sums]:
        """Return which texts are done and their sums, or raise a `FileFormatError`."""
        contents = read_file(path, kind=KIND)
        with built_from("the progress of these texts"):
            sums = dict(contents.arrays)
            done = np.array(sums.pop("done"))
            if done.dtype != np.bool_ or done.shape != self._done.shape or done.sum() != contents.header["count"]:
                raise ShapeError(f"It counts {done.shape} texts, and there are {self._done.shape}.")
            return done, sums
