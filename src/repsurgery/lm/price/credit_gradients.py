"""Gradients of credits: how a shift of the states at a site changes the expected credit of a continuation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from repsurgery.arrays import Matrix, Vector
from repsurgery.errors import DataError, ShapeError
from repsurgery.lm.batching import evaluating, map_batches
from repsurgery.lm.generate.generate import Generation
from repsurgery.lm.price.positions import Shifted, check_generations, reading_of
from repsurgery.lm.price.scores import ScoreLayer
from repsurgery.lm.price.shifts import require_decoder, shifted_passes
from repsurgery.lm.read.class_moments import check_sites

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
) -> dict[str, Matrix]:
    """Return, per site and prompt, the gradient of the expected credit in a shift of the states.

    Row i is the mean over the continuations of prompt i of Σ_t (credit_t − baseline) ∇ log p(x_t | h_t). The baseline
    is the mean credit of a step of that prompt; it leaves the expectation as it is, because scores have mean zero, and
    removes the noise that equal credits would cause.

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

    Returns
    -------
    dict of site name to (n_prompts, d) float64 array, in increasing order of ``Generation.index``

    Guarantees
    ----------
    At "final" and below, equal to the derivative by automatic differentiation
    (test_credit_gradients_are_those_of_the_log_likelihood).
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

    with evaluating(inner), shifted_passes(inner, tokenizer, below, reading) as read:

        def run(batch: list[int]) -> list[dict[str, Vector]]:
            passed = read(batch)
            tokens = torch.tensor([token for i in batch for token in found[i].tokens])
            weights = torch.from_numpy(np.concatenate([advantages[i] for i in batch]))
            scores = layer.of(passed.rows(), tokens)
            scores = weights.to(scores)[:, None] * scores
            gradients = passed.gradients(scores) if below else {}
            rows = [
                part.sum(dim=0) for part in torch.split(scores.double().cpu(), [len(found[i].tokens) for i in batch])
            ]
            gradients["final"] = torch.stack(rows)
            return [{name: gradients[name][row].numpy() for name in names} for row in range(len(batch))]

        lengths = list(map(len, reading.tokens))
        by_text = map_batches(lengths, run, batch_size=batch_size, progress=progress, label="weighing")
    return {name: _by_prompt(found, [gradients[name] for gradients in by_text]) for name in names}


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


def _by_prompt(generations: list[Generation], rows: list[Vector]) -> Matrix:
    _, prompts, counts = np.unique([g.index for g in generations], return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), len(rows[0])))
    np.add.at(sums, prompts, np.stack(rows))
    return sums / counts[:, None]
