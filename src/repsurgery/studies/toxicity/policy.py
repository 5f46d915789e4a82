"""The model's own continuations of training prompts: written, scored, and read at the sites of the configurations."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from repsurgery import lm
from repsurgery.errors import DataError
from repsurgery.files import Contents
from repsurgery.lm.generate.generate import Generation
from repsurgery.scorers import ToxicityScorer
from repsurgery.studies.common.stages import KIND, Stages
from repsurgery.studies.toxicity.generators import GeneratorContext
from repsurgery.studies.toxicity.judging import judge_toxicity
from repsurgery.studies.toxicity.spec import ToxicitySpec
from repsurgery.studies.toxicity.steered_generator import SiteSteering, SteeredGenerator
from repsurgery.studies.toxicity.vectors import Labelled
from repsurgery.studies.toxicity.writing import Written, write

__all__ = ["Policy", "read_steps", "write_policy"]

CHUNK = 200
"""Continuations whose vectors are stored in one file."""


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """Continuations of training prompts, and what the scorer thinks of each.

    Attributes
    ----------
    written : Written
        The continuations of each prompt.
    generations : list of Generation
        The same in one list.
    labels : list of str or None
        The source or the target by the thresholds of the study; None where the score lies between them.
    """

    written: Written
    generations: list[Generation]
    labels: list[str | None]

    def labelled(self, steps: Sequence[NDArray[np.float32]]) -> Labelled:
        """Return the steps (n, d) of the labelled continuations; each continuation is one group."""
        chosen = [i for i, label in enumerate(self.labels) if label is not None]
        lengths = [len(steps[i]) for i in chosen]
        labels = np.repeat([str(self.labels[i]) for i in chosen], lengths)
        return Labelled(np.concatenate([steps[i] for i in chosen]), labels, np.repeat(chosen, lengths))


def write_policy(
    context: GeneratorContext,
    scorer: ToxicityScorer,
    prompts: Sequence[str],
    steering: SiteSteering | None = None,
) -> Policy:
    """Let the model continue training prompts, unsteered or under ``steering``, and label its texts by the scorer."""
    spec, generator = context.spec, SteeredGenerator("on-policy", context, steering)
    written = write(generator, prompts, spec.policy_samples, folder=context.work / "texts")
    scores = judge_toxicity(scorer, written, context.work / "judgements")
    labels = [_label(spec, score) for row in scores for score in row]
    if labels.count(spec.source) < 2 or labels.count(spec.target) < 2:
        raise DataError(
            f"Of {len(labels)} continuations the scorer {scorer.name} rated {labels.count(spec.source)} as toxic (from "
            f"{spec.policy_toxic} on) and {labels.count(spec.target)} as clean (up to {spec.policy_clean}). Raise "
            "policy_prompts or policy_samples, or move policy_toxic and policy_clean."
        )
    return Policy(written, [g for row in written.rows for g in row], labels)


def read_steps(context: GeneratorContext, generations: Sequence[Generation], site: str) -> list[NDArray[np.float32]]:
    """Return, per continuation, the vectors (steps, d) from which its tokens were drawn; stored ones are reused.

    Vectors of continuations that were written under a steering at this site are those that the steering received.
    """
    own = {name: context.identity[name] for name in ("model", "tokenizer")}
    rows: list[NDArray[np.float32]] = []
    for start in range(0, len(generations), CHUNK):
        part = generations[start : start + CHUNK]
        texts = {"tokens": [g.tokens for g in part], "prompts": [g.prompt for g in part]}
        stages = Stages.of(context.work / "policy", {**own, "site": site, **texts})
        stage = stages.get("steps", partial(_states_along, context, part, site))
        vectors = np.asarray(stage.arrays["rows"], dtype=np.float32)
        rows += np.split(vectors, np.cumsum(stage.arrays["steps"])[:-1])
    return rows


def _states_along(context: GeneratorContext, part: Sequence[Generation], site: str) -> Contents:
    states = lm.states_along(context.model, context.tokenizer, part, site=site, progress=False)
    steps = np.array([len(rows) for rows in states])
    return Contents(KIND, {}, {"rows": np.concatenate(states), "steps": steps})


def _label(spec: ToxicitySpec, score: float | None) -> str | None:
    if score is None:
        return None
    if score >= spec.policy_toxic:
        return spec.source
    return spec.target if score <= spec.policy_clean else None
