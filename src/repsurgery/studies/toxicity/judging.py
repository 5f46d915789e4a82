"""Judge what was written: toxicity by each scorer, fluency by another model, and how often the gate moved a vector."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from repsurgery import lm
from repsurgery.checkpoint import journal_of
from repsurgery.errors import DataError
from repsurgery.lm.generate.generate import Generation
from repsurgery.lm.twins import Twin
from repsurgery.scorers import ToxicityScorer, score_texts
from repsurgery.studies.toxicity.steerings import Fitted
from repsurgery.studies.toxicity.writing import model_identity

__all__ = ["Written", "judge_fluency", "judge_toxicity", "steered_share"]

Written = Sequence[Sequence[Generation]]
"""The continuations of each prompt."""
AT_ONCE = 20
"""Prompts that are judged before the next note is taken."""


def judge_toxicity(
    scorer: ToxicityScorer, written: Written, identity: dict[str, Any], folder: Path
) -> list[list[float | None]]:
    """Return one score per continuation, None where the scorer had none; what was scored before is not again.

    Parameters
    ----------
    identity : dict
        What decides the texts; see `texts_identity`.
    """
    own = {"texts": identity, "scorer": [scorer.name, scorer.version, scorer.digest]}

    def score(part: Written) -> list[list[Any]]:
        texts = [g.text for some in part for g in some]
        found = score_texts(scorer, texts)
        if found.failures and found.failures == sum(bool(text.strip()) for text in texts):
            raise DataError(
                f"The scorer {scorer.name} failed on every one of {found.failures} texts: {found.message}. Mend it or "
                "leave it out of scorers, and run the same command again: what was written is kept."
            )
        flat = iter(found.scores)
        return [[next(flat) for _ in some] for some in part]

    return _judged(written, score, journal_of(folder, "toxicity", own))


def judge_fluency(
    twin: Twin, written: Written, identity: dict[str, Any], folder: Path, *, judge: Mapping[str, str] | None = None
) -> list[list[tuple[float, int]]]:
    """Return negative log-likelihood and tokens of each continuation under the twin's model.

    Parameters
    ----------
    judge : mapping or None
        The `model_identity` of the twin, where it is known already.
    """
    own = {"texts": identity, "fluency": judge or model_identity(twin)}

    def read(part: Written) -> list[list[Any]]:
        prompts = [some[0].prompt for some in part]
        texts = [[g.text for g in some] for some in part]
        found = lm.surprises(twin.model, twin.tokenizer, prompts, texts, progress=False)
        return [[[s.nll, s.tokens] for s in some] for some in found]

    judged = _judged(written, read, journal_of(folder, "fluency", own))
    return [[(nll, tokens) for nll, tokens in some] for some in judged]


def steered_share(twin: Twin, fitted: Fitted, source: str, written: Written) -> float:
    """Return the share of positions, among those that predicted a token, at which the gate found ``source``."""
    if fitted.configuration.scope == "all":
        return 1.0
    generations = [g for some in written for g in some]
    rows = lm.states_along(twin.model, twin.tokenizer, generations, site=fitted.configuration.site, progress=False)
    return float(np.mean(fitted.steered.function.gate.predict(np.concatenate(rows)) == source))


def _judged(written: Written, judge: Callable[[Written], list[list[Any]]], journal: Any) -> list[list[Any]]:
    waiting = [some for some in written if len(journal.get(some[0].prompt, ())) < len(some)]
    for start in range(0, len(waiting), AT_ONCE):
        part = waiting[start : start + AT_ONCE]
        journal.note({some[0].prompt: values for some, values in zip(part, judge(part), strict=True)})
    return [journal[some[0].prompt][: len(some)] for some in written]
