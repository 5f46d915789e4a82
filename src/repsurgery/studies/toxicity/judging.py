"""Judge continuations: toxicity by each scorer, fluency by another model, and how much the gate steered."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from repsurgery import lm
from repsurgery.checkpoint import Journal, journal_of
from repsurgery.errors import DataError
from repsurgery.lm.generate.generate import Generation
from repsurgery.lm.twins import Twin
from repsurgery.scorers import ToxicityScorer, score_texts
from repsurgery.studies.toxicity.steerings import Fitted
from repsurgery.studies.toxicity.writing import Written

__all__ = ["judge_fluency", "judge_toxicity", "steered_share"]

Rows = Sequence[Sequence[Generation]]
"""The continuations of each prompt."""
AT_ONCE = 20
"""Prompts that are judged before the judgements are stored."""


def judge_toxicity(scorer: ToxicityScorer, written: Written, folder: Path) -> list[list[float | None]]:
    """Return one score per continuation, None where the scorer has none; stored scores are reused."""

    def score(part: Rows) -> list[list[Any]]:
        texts = [g.text for row in part for g in row]
        scored = score_texts(scorer, texts)
        if scored.failures and scored.failures == sum(bool(text.strip()) for text in texts):
            raise DataError(
                f"The scorer {scorer.name} failed on every one of {scored.failures} texts: {scored.message}. Repair it "
                "or remove it from scorers, and run the same command again: the texts are stored."
            )
        scores = iter(scored.scores)
        return [[next(scores) for _ in row] for row in part]

    identity = {"texts": written.identity, "scorer": [scorer.name, scorer.version, scorer.digest]}
    return _judged(written.rows, score, journal_of(folder, "toxicity", identity))


def judge_fluency(
    twin: Twin, written: Written, prompts: int, folder: Path, *, digests: Mapping[str, str]
) -> list[list[tuple[float, int]]]:
    """Return negative log-likelihood and tokens of the continuations of the first ``prompts`` prompts.

    Parameters
    ----------
    twin : Twin
        The model that judges.
    digests : mapping
        Its `model_identity`.
    """

    def read(part: Rows) -> list[list[Any]]:
        texts = [[g.text for g in row] for row in part]
        surprises = lm.surprises(twin.model, twin.tokenizer, [row[0].prompt for row in part], texts, progress=False)
        return [[[s.nll, s.tokens] for s in row] for row in surprises]

    identity = {"texts": written.identity, "fluency": dict(digests)}
    judged = _judged(written.rows[:prompts], read, journal_of(folder, "fluency", identity))
    return [[(nll, tokens) for nll, tokens in row] for row in judged]


def steered_share(twin: Twin, fitted: Fitted, rows: Rows) -> float:
    """Return the share of positions, among those that predicted a token, that the gate assigns to a map.

    Behind a soft gate it is the mean strength. The states are read again. The hook of `lm.steer` counts something
    else: positions of the prompt too, and those of finished texts that wait for the rest of their batch.
    """
    function, site = fitted.steering.function, fitted.steering.site
    if function.steers_all:
        return 1.0
    generations = [g for row in rows for g in row]
    states = lm.states_along(twin.model, twin.tokenizer, generations, site=site, progress=False)
    return float(np.mean(function.weights(np.concatenate(states)).sum(axis=1)))


def _judged(rows: Rows, values_of: Callable[[Rows], list[list[Any]]], journal: Journal) -> list[list[Any]]:
    missing = [row for row in rows if len(journal.get(row[0].prompt, ())) < len(row)]
    for part in (missing[start : start + AT_ONCE] for start in range(0, len(missing), AT_ONCE)):
        journal.note({row[0].prompt: values for row, values in zip(part, values_of(part), strict=True)})
    return [journal[row[0].prompt][: len(row)] for row in rows]
