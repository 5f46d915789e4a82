"""The vectors that maps are fitted on: last tokens, every token, and what the model writes itself."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery import lm
from repsurgery.arrays import Label
from repsurgery.errors import DataError
from repsurgery.files import Contents
from repsurgery.lm.generate.generate import Generation
from repsurgery.lm.twins import Twin
from repsurgery.moments import ClassMoments
from repsurgery.scorers import ToxicityScorer, score_texts
from repsurgery.studies.common.stages import KIND, Stages
from repsurgery.studies.toxicity.data import StudyTexts
from repsurgery.studies.toxicity.spec import ToxicitySpec
from repsurgery.studies.toxicity.writing import Sampling, model_identity, write

__all__ = ["Labelled", "Policy", "Vectors", "read_last", "read_policy", "read_tokens", "write_policy"]

CHUNK = 200
"""Continuations whose vectors are kept in one file."""


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Rows (n, d) and the label of each."""

    X: NDArray[np.float32]
    z: NDArray[Any]

    def first(self, rows: int) -> "Labelled":
        """Return the first ``rows`` rows of each label; 0: all."""
        if rows == 0:
            return self
        kept = np.sort(np.concatenate([np.flatnonzero(self.z == label)[:rows] for label in np.unique(self.z)]))
        return Labelled(self.X[kept], self.z[kept])


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """Continuations of training prompts that the scorer found toxic or clean; the others are left out."""

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
    twin: Twin, spec: ToxicitySpec, texts: dict[str, list[str]], site: str, rows: int, *, work: Path, progress: bool
) -> Labelled:
    """Return the last token's vector of the first ``rows`` texts of each label (0: all)."""
    chosen = {label: some[: rows or None] for label, some in texts.items()}
    X = lm.extract(
        twin.model,
        twin.tokenizer,
        [text for some in chosen.values() for text in some],
        site=site,
        max_length=spec.max_length,
        progress=progress,
        work_dir=work / "states",
    )
    return Labelled(X, np.repeat(list(chosen), [len(some) for some in chosen.values()]))


def read_tokens(
    twin: Twin, spec: ToxicitySpec, texts: dict[str, list[str]], sites: list[str], *, work: Path, progress: bool
) -> dict[str, ClassMoments]:
    """Return, per site, the moments of every token of the first ``token_rows`` texts of each label."""
    chosen = {label: some[: spec.token_rows] for label, some in texts.items()}
    return lm.class_moments(
        twin.model,
        twin.tokenizer,
        [text for some in chosen.values() for text in some],
        list[Label](np.repeat(list(chosen), [len(some) for some in chosen.values()]).tolist()),
        sites=sites,
        pooling="all",
        max_length=spec.max_length,
        progress=progress,
        work_dir=work / "states",
    )


def write_policy(
    twin: Twin, spec: ToxicitySpec, texts: StudyTexts, scorer: ToxicityScorer, sampling: Sampling, *, work: Path
) -> Policy:
    """Let the untouched model continue the training prompts, and label what it wrote by the scorer."""
    written = write(
        twin, texts.training.texts, spec.policy_samples, steering=None, sampling=sampling, folder=work / "texts"
    )
    generations = [g for some in written for g in some]
    scored = score_texts(scorer, [g.text for g in generations])
    labels = [_label(spec, score) for score in scored.scores]
    if labels.count(spec.source) < 2 or labels.count(spec.target) < 2:
        raise DataError(
            f"Of {len(labels)} continuations the scorer {scorer.name} found {labels.count(spec.source)} toxic (from "
            f"{spec.policy_toxic} on) and {labels.count(spec.target)} clean (up to {spec.policy_clean}). Raise "
            "policy_prompts or policy_samples, or move policy_toxic and policy_clean."
        )
    kept = [(g, label) for g, label in zip(generations, labels, strict=True) if label is not None]
    return Policy([g for g, _ in kept], [label for _, label in kept])


def read_policy(twin: Twin, policy: Policy, site: str, *, work: Path) -> Labelled:
    """Return the vectors from which the policy's tokens were drawn, with the label of their continuation."""
    identity = {**model_identity(twin), "site": site, "tokens": [g.tokens for g in policy.generations]}
    stages = Stages.of(work / "policy", {**identity, "prompts": [g.prompt for g in policy.generations]})
    rows, labels = [], []
    for start in range(0, len(policy.generations), CHUNK):
        part = policy.generations[start : start + CHUNK]
        held = stages.get(f"steps-{start}", lambda part=part: _along(twin, part, site))  # type: ignore[misc]
        rows.append(np.asarray(held.arrays["rows"], dtype=np.float32))
        labels += np.repeat(policy.labels[start : start + CHUNK], held.arrays["steps"]).tolist()
    return Labelled(np.concatenate(rows), np.array(labels))


def _along(twin: Twin, part: list[Generation], site: str) -> Contents:
    found = lm.states_along(twin.model, twin.tokenizer, part, site=site, progress=False)
    steps = np.array([len(rows) for rows in found])
    return Contents(KIND, {}, {"rows": np.concatenate(found), "steps": steps})


def _label(spec: ToxicitySpec, score: float | None) -> str | None:
    if score is None:
        return None
    if score >= spec.policy_toxic:
        return spec.source
    return spec.target if score <= spec.policy_clean else None
