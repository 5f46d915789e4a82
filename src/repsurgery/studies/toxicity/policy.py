"""The model's own continuations of training prompts: written, scored and labelled."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import repsurgery as rs
from repsurgery import lm
from repsurgery.arrays import Vector
from repsurgery.errors import DataError
from repsurgery.lm.generate.generate import Generation, prompt_tokens
from repsurgery.lm.policy.credit import CLASSES, Rule, prefix_scores
from repsurgery.lm.policy.scores import Scores
from repsurgery.scorers import ToxicityScorer, score_texts
from repsurgery.studies.toxicity.generators import GeneratorContext
from repsurgery.studies.toxicity.judging import judge_toxicity
from repsurgery.studies.toxicity.steered_generator import SteeredGenerator
from repsurgery.studies.toxicity.steps import read_steps, spread_out
from repsurgery.studies.toxicity.vectors import Labelled
from repsurgery.studies.toxicity.writing import write

__all__ = ["Policy", "Tolerant", "read_labelled", "score_prefixes", "write_policy"]

SPREAD = 0.3
"""Prompts whose continuations all have scores closer than this say almost nothing about which step to change."""


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """Continuations of training prompts with their scores, in order of prompt and sample."""

    generations: list[Generation]
    scores: list[float | None]

    def telling(self) -> list[Generation]:
        """Return the continuations of the prompts whose highest and lowest score differ by `SPREAD` at least."""
        by_prompt: dict[int, list[float]] = {}
        for g, score in zip(self.generations, self.scores, strict=True):
            by_prompt.setdefault(g.index, []).append(score or 0.0)
        return [g for g in self.generations if np.ptp(by_prompt[g.index]) >= SPREAD]


def write_policy(
    context: GeneratorContext,
    scorer: ToxicityScorer,
    prompts: Sequence[str],
    steering: lm.Placement | None = None,
) -> Policy:
    """Let the model continue training prompts, unsteered or under ``steering``, and label its texts by the scorer."""
    spec, generator = context.spec, SteeredGenerator("on-policy", context, steering)
    written = write(generator, prompts, spec.policy_samples, folder=context.work / "texts")
    scores = [score for row in judge_toxicity(scorer, written, context.work / "judgements") for score in row]
    generations = [g for row in written.rows for g in row]
    read = prompt_tokens(context.model, context.tokenizer, generations, caller="write_policy")
    return Policy([replace(g, prompt_tokens=tuple(t)) for g, t in zip(generations, read, strict=True)], scores)


def read_labelled(
    context: GeneratorContext,
    policy: Policy,
    scorer: ToxicityScorer,
    site: str,
    *,
    credit: Any = "text",
    before: rs.SteeringFunction | None = None,
) -> Labelled:
    """Return steps (n, d) with the label of their text, or of their own credit; each continuation is one group.

    Parameters
    ----------
    credit : {"text", "step"}
        See `lm.on_policy`; with "step", only the prompts whose continuations differ in score are read.
    before : SteeringFunction or None
        The steering at ``site`` under which the texts were written; the steps are returned as it left them.
    """
    spec = context.spec
    rule = Rule(credit, spec.policy_toxic, spec.policy_clean, spec.policy_step)
    chosen, codes = _chosen(context, policy, scorer, rule)
    steps = read_steps(context, chosen, site)
    X, code = np.concatenate(steps), np.concatenate(codes)
    labelled = code >= 0
    names = np.array([spec.source if name == "source" else spec.target for name in CLASSES])
    groups = np.repeat(np.arange(len(chosen)), [len(row) for row in steps])
    rows = X[labelled] if before is None else before(X[labelled]).astype(np.float32)
    return Labelled(rows, names[code[labelled]], groups[labelled])


def _chosen(
    context: GeneratorContext, policy: Policy, scorer: ToxicityScorer, rule: Rule
) -> tuple[list[Generation], list[NDArray[np.intp]]]:
    """Return the continuations to read, and the class of each of their steps."""
    spec, most = context.spec, context.spec.policy_texts
    if rule.credit == "step":
        chosen = policy.telling()
        prefixes = score_prefixes(context, scorer, chosen)
        codes = [rule.of_steps(g, row) for g, row in zip(chosen, prefixes, strict=True)]
    else:
        every = zip(policy.generations, policy.scores, strict=True)
        coded = [(g, rule.of_text(g, score)) for g, score in every]
        # a text whose prompt was ended at once has no step
        parts = [[(g, row) for g, row in coded if len(row) and row[0] == code] for code in range(len(CLASSES))]
        pairs = [pair for part in parts for pair in spread_out(part, most or len(part))]
        chosen, codes = [g for g, _ in pairs], [row for _, row in pairs]
    texts = [sum(bool((row == code).any()) for row in codes) for code in range(len(CLASSES))]
    if min(texts) < 2:
        raise DataError(
            f"Of {len(policy.generations)} continuations the scorer {scorer.name} rated {texts[0]} as "
            f"{spec.source} and {texts[1]} as {spec.target} ({', '.join(rule.explained().values())}). Raise "
            "policy_prompts or policy_samples, or move policy_toxic, policy_clean and policy_step."
        )
    return chosen, codes


class Tolerant:
    """A scorer that has no score for the texts on which it fails, as everywhere in a study."""

    def __init__(self, scorer: ToxicityScorer) -> None:
        self._scorer, self.name, self.version, self.digest = scorer, scorer.name, scorer.version, scorer.digest

    def __call__(self, texts: list[str]) -> list[float | None]:
        """Return one score per text, or None."""
        return list(score_texts(self._scorer, texts).scores)


def score_prefixes(
    context: GeneratorContext, scorer: ToxicityScorer, generations: Sequence[Generation]
) -> list[Vector]:
    """Return, per continuation of T tokens, the scores (T + 1,) of its prefixes; stored ones are reused."""
    scores = Scores(Tolerant(scorer), context.work / "prefixes")
    return list(prefix_scores(scores, context.tokenizer, generations, progress=False))
