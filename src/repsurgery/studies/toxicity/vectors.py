"""The vectors on which maps are fitted: last tokens, every token, and the model's own continuations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery import lm
from repsurgery.arrays import Label
from repsurgery.errors import DataError
from repsurgery.files import Contents
from repsurgery.lm.generate.generate import Generation
from repsurgery.moments import ClassMoments
from repsurgery.scorers import ToxicityScorer, score_texts
from repsurgery.studies.common.stages import KIND, Stages
from repsurgery.studies.toxicity.generators import GeneratorContext
from repsurgery.studies.toxicity.spec import ToxicitySpec
from repsurgery.studies.toxicity.steered_generator import SteeredGenerator
from repsurgery.studies.toxicity.writing import write

__all__ = ["Labelled", "Policy", "Vectors", "read_last", "read_policy", "read_tokens", "write_policy"]

CHUNK = 200
"""Continuations whose vectors are stored in one file."""


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Rows (n, d) and the label of each."""

    X: NDArray[np.float32]
    z: NDArray[Any]

    def first(self, rows: int) -> "Labelled":
        """Return the first ``rows`` rows of each label; 0: all."""
        if rows == 0:
            return self
        chosen = np.sort(np.concatenate([np.flatnonzero(self.z == label)[:rows] for label in np.unique(self.z)]))
        return Labelled(self.X[chosen], self.z[chosen])


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """Continuations of training prompts that the scorer rates as toxic or clean; all others are left out."""

    generations: list[Generation]
    labels: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """By site: last tokens of the texts to fit on and of those held out, moments of every token, on-policy steps."""

    last: dict[str, Labelled] = field(default_factory=dict)
    held_out: dict[str, Labelled] = field(default_factory=dict)
    tokens: dict[str, ClassMoments] = field(default_factory=dict)
    policy: dict[str, Labelled] = field(default_factory=dict)


def read_last(
    context: GeneratorContext, texts: Mapping[str, list[str]], site: str, rows: int, *, progress: bool
) -> Labelled:
    """Return the last token's vector of the first ``rows`` texts of each label; 0: all texts."""
    chosen, labels = _first(texts, rows)
    X = lm.extract(context.model, context.tokenizer, chosen, site=site, **_reading(context, progress=progress))
    return Labelled(X, np.array(labels))


def read_tokens(
    context: GeneratorContext, texts: Mapping[str, list[str]], sites: list[str], *, progress: bool
) -> dict[str, ClassMoments]:
    """Return, per site, the moments of every token of the first ``token_rows`` texts of each label."""
    chosen, labels = _first(texts, context.spec.token_rows)
    how = _reading(context, progress=progress)
    return lm.class_moments(context.model, context.tokenizer, chosen, labels, sites=sites, pooling="all", **how)


def _first(texts: Mapping[str, list[str]], rows: int) -> tuple[list[str], list[Label]]:
    pairs = [(text, label) for label, every in texts.items() for text in every[: rows or None]]
    return [text for text, _ in pairs], [label for _, label in pairs]


def _reading(context: GeneratorContext, *, progress: bool) -> dict[str, Any]:
    return {"max_length": context.spec.max_length, "progress": progress, "work_dir": context.work / "states"}


def write_policy(context: GeneratorContext, scorer: ToxicityScorer) -> Policy:
    """Let the untouched model continue the training prompts, and label its texts by the scorer."""
    spec, untouched = context.spec, SteeredGenerator("base", context, None)
    written = write(untouched, context.texts.training.texts, spec.policy_samples, folder=context.work / "texts")
    generations = [g for row in written.rows for g in row]
    labels = [_label(spec, score) for score in score_texts(scorer, [g.text for g in generations]).scores]
    if labels.count(spec.source) < 2 or labels.count(spec.target) < 2:
        raise DataError(
            f"Of {len(labels)} continuations the scorer {scorer.name} rated {labels.count(spec.source)} as toxic (from "
            f"{spec.policy_toxic} on) and {labels.count(spec.target)} as clean (up to {spec.policy_clean}). Raise "
            "policy_prompts or policy_samples, or move policy_toxic and policy_clean."
        )
    pairs = [(g, label) for g, label in zip(generations, labels, strict=True) if label is not None]
    return Policy([g for g, _ in pairs], [label for _, label in pairs])


def read_policy(context: GeneratorContext, policy: Policy, site: str) -> Labelled:
    """Return the vectors from which the policy's tokens were drawn, with the label of their continuation."""
    own = {name: context.identity[name] for name in ("model", "tokenizer")}
    texts = {"tokens": [g.tokens for g in policy.generations], "prompts": [g.prompt for g in policy.generations]}
    stages = Stages.of(context.work / "policy", {**own, "site": site, **texts})
    rows, labels = [], []
    for start in range(0, len(policy.generations), CHUNK):
        part = policy.generations[start : start + CHUNK]
        stage = stages.get(f"steps-{start}", partial(_states_along, context, part, site))
        rows.append(np.asarray(stage.arrays["rows"], dtype=np.float32))
        labels += np.repeat(policy.labels[start : start + CHUNK], stage.arrays["steps"]).tolist()
    return Labelled(np.concatenate(rows), np.array(labels))


def _states_along(context: GeneratorContext, part: list[Generation], site: str) -> Contents:
    states = lm.states_along(context.model, context.tokenizer, part, site=site, progress=False)
    steps = np.array([len(rows) for rows in states])
    return Contents(KIND, {}, {"rows": np.concatenate(states), "steps": steps})


def _label(spec: ToxicitySpec, score: float | None) -> str | None:
    if score is None:
        return None
    if score >= spec.policy_toxic:
        return spec.source
    return spec.target if score <= spec.policy_clean else None
