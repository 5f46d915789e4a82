"""Gradients of credits: how a shift of the states changes the expected credit of the steps along given texts."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from repsurgery.arrays import Matrix, Vector
from repsurgery.checkpoint import uninterrupted
from repsurgery.errors import DataError, ShapeError
from repsurgery.lm.generate.generate import Generation
from repsurgery.lm.price.positions import Shifted, check_generations, reading_of
from repsurgery.lm.price.scores import ScoreLayer
from repsurgery.lm.price.shifts import require_decoder, shifted_passes
from repsurgery.lm.read.class_moments import check_sites
from repsurgery.lm.read.extract import StoredRows
from repsurgery.lm.read.resuming import Results, folder_of, run_missing

__all__ = ["credit_gradients"]


def credit_gradients(
    model: nn.Module,
    tokenizer: Any,
    generations: Sequence[Generation],
    credits: Sequence[Any],  # noqa: A002 - the word for it; the builtin prints a notice
    *,
    sites: Sequence[str],
    positions: Shifted = "all",
    batch_size: int = 16,
    progress: bool = True,
    work_dir: str | os.PathLike[str] | None = None,
) -> dict[str, Matrix]:
    """Return, per site and prompt, the gradient of the expected credit in a shift of the states.

    Row i is the mean over the continuations of prompt i of Σ_t (credit_t − baseline) ∇ log p(x_t | h_t). This is the
    gradient of the credit that each step is expected to have, summed over the steps, with the texts before each step
    as the base model writes them: how a token changes the credits of later tokens is left out.

    Parameters
    ----------
    model, tokenizer
        The decoder that generated the texts, now unsteered, and its tokenizer; neither is changed.
    generations : sequence of n `Generation`
    credits : sequence of n arrays
        One number per generated token, such as the change of a score at that token. The step that ended a text has no
        credit and does not count.
    sites : sequence of str
        All of them are computed in the same pass; see `resolve_site`.
    positions : {"all", "generated"}
        Which positions are shifted, see `fisher`.
    batch_size, progress
        As in `extract`.
    work_dir : path or None
        As in `class_moments`: the same call resumes after an interruption.

    Returns
    -------
    dict of site name to (n_prompts, d) float64 array, in increasing order of ``Generation.index``

    Notes
    -----
    The baseline is the mean credit of a step of the prompt. It removes the noise that equal credits would cause, and it
    has a small bias. It contains the step's own credit, so that with N steps of a prompt it multiplies the expectation
    by 1 − 1/N where a credit depends on its own token alone; a token's effect on later credits of its text enters with
    the weight −1/N. The other credits do not matter in expectation if the scores ∇ log p(x_t | h_t) have mean zero,
    which holds for tokens drawn from p itself. It does not hold for texts drawn with ``top_p`` below 1 or with another
    temperature, nor exactly because the step that ended a text is left out.

    Guarantees
    ----------
    At "final" and below, equal to the derivative by automatic differentiation
    (test_credit_gradients_are_those_of_the_log_likelihood).
    An interruption loses nothing (test_interrupted_gradients_go_on_where_they_stopped).
    Equal credits of all steps of a prompt give zero (test_equal_credits_have_no_gradient).
    """
    inner = require_decoder(model, caller="credit_gradients")
    names = check_sites(sites, caller="credit_gradients")
    found = check_generations(generations, caller="credit_gradients")
    reading = reading_of(inner, tokenizer, found, max_length=None, shifted=positions, caller="credit_gradients")
    steps = [slice(step.start, step.start + len(g.tokens)) for step, g in zip(reading.steps, found, strict=True)]
    reading = replace(reading, steps=steps)
    advantages = _advantages(found, _checked(found, credits))
    layer = ScoreLayer(inner)
    below = [name for name in names if name != "final"]
    settings = {
        **{"job": "credit-gradients", "sites": names, "positions": positions, "tokens": reading.tokens},
        **{"steps": [[step.start, step.stop] for step in steps], "advantages": [a.tolist() for a in advantages]},
    }
    store = _Stores(names, len(found), folder_of(work_dir, model, [], settings))
    with shifted_passes(inner, tokenizer, below, reading) as read:

        def run(batch: list[int]) -> None:
            passed = read(batch)
            tokens = torch.tensor([token for i in batch for token in found[i].tokens])
            weights = torch.from_numpy(np.concatenate([advantages[i] for i in batch]))
            scores = layer.of(passed.rows(), tokens)
            scores = weights.to(scores)[:, None] * scores
            gradients = passed.gradients(scores) if below else {}
            by_text = torch.split(scores.double().cpu(), [len(found[i].tokens) for i in batch])
            gradients["final"] = torch.stack([part.sum(dim=0) for part in by_text])
            with uninterrupted():
                store.take(batch, {name: gradients[name].numpy() for name in names})

        lengths = list(map(len, reading.tokens))
        run_missing(store, run, inner, lengths, batch_size=batch_size, progress=progress, label="weighing")
    return {name: _by_prompt(found, store.rows(name)) for name in names}


class _Stores(Results):
    """Gradients by site and text, each site in a folder of its own where there is one."""

    def __init__(self, sites: list[str], n: int, folder: Path | None) -> None:
        super().__init__(n)
        self._stores: dict[str, StoredRows] = {}
        for i, site in enumerate(sites):
            own = None if folder is None else folder / f"site-{i}"
            if own is not None:
                own.mkdir(exist_ok=True)
            self._stores[site] = StoredRows(n, own, dtype=np.float64)

    def missing(self) -> list[int]:
        """Return the indices of the texts that are missing at some site."""
        return sorted({i for store in self._stores.values() for i in store.missing()})

    def take(self, index: list[int], gradients: Mapping[str, Matrix]) -> None:
        """Take in the gradients (batch, d) of the texts at ``index``, by site."""
        for site, store in self._stores.items():
            store.take(index, gradients[site])

    def save(self) -> None:
        """Write what is new."""
        for store in self._stores.values():
            store.save()

    def rows(self, site: str) -> Matrix:
        """Return the gradients (n, d) at ``site``."""
        return self._stores[site].rows


def _checked(generations: list[Generation], given: Sequence[Any]) -> list[Vector]:
    if len(given) != len(generations):
        raise ShapeError(f"credit_gradients got {len(generations)} generations and {len(given)} arrays of credits.")
    checked = [np.asarray(values, dtype=np.float64) for values in given]
    for i, (generation, values) in enumerate(zip(generations, checked, strict=True)):
        if values.shape != (len(generation.tokens),):
            raise ShapeError(
                f"The credits at index {i} have shape {values.shape}; this generation has {len(generation.tokens)} "
                "tokens. Give one number for each of them."
            )
        if not np.isfinite(values).all():
            raise DataError(f"The credits at index {i} hold NaN or infinity. Drop that generation, or score it again.")
    return checked


def _advantages(generations: list[Generation], steps: list[Vector]) -> list[Vector]:
    by_prompt: dict[int, list[Vector]] = {}
    for generation, values in zip(generations, steps, strict=True):
        by_prompt.setdefault(generation.index, []).append(values)
    baselines = {index: sum(map(np.sum, parts)) / max(1, sum(map(len, parts))) for index, parts in by_prompt.items()}
    return [values - baselines[g.index] for g, values in zip(generations, steps, strict=True)]


def _by_prompt(generations: list[Generation], rows: Matrix) -> Matrix:
    _, prompts, counts = np.unique([g.index for g in generations], return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), rows.shape[1]))
    np.add.at(sums, prompts, rows)
    return sums / counts[:, None]
