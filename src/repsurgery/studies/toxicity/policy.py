"""The model's own continuations of training prompts: written, scored, and read at the sites of the configurations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import repsurgery as rs
from repsurgery import lm
from repsurgery.arrays import Matrix
from repsurgery.errors import DataError
from repsurgery.files import Contents
from repsurgery.lm.generate.generate import Generation, prompt_tokens
from repsurgery.lm.policy.credit import CLASSES, Rule, prefix_scores
from repsurgery.lm.policy.scores import Scores
from repsurgery.scorers import ToxicityScorer, score_texts
from repsurgery.studies.common.stages import KIND, Stages
from repsurgery.studies.toxicity.generators import GeneratorContext
from repsurgery.studies.toxicity.judging import judge_toxicity
from repsurgery.studies.toxicity.steered_generator import SiteSteering, SteeredGenerator
from repsurgery.studies.toxicity.vectors import Labelled
from repsurgery.studies.toxicity.writing import write

__all__ = ["Policy", "read_gradients", "read_labelled", "read_steps", "spread_out", "texts_key", "write_policy"]

Item = TypeVar("Item")
CHUNK = 200
"""Continuations whose vectors are stored in one file."""
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
    steering: SiteSteering | None = None,
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
        prefixes = _prefixes(context, scorer, chosen)
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


class _Tolerant:
    """A scorer that has no score for the texts on which it fails, as everywhere in a study."""

    def __init__(self, scorer: ToxicityScorer) -> None:
        self._scorer, self.name, self.version, self.digest = scorer, scorer.name, scorer.version, scorer.digest

    def __call__(self, texts: list[str]) -> list[float | None]:
        return list(score_texts(self._scorer, texts).scores)


def _prefixes(context: GeneratorContext, scorer: ToxicityScorer, generations: Sequence[Generation]) -> list[Any]:
    scores = Scores(_Tolerant(scorer), context.work / "prefixes")
    return list(prefix_scores(scores, context.tokenizer, generations, progress=False))


def read_gradients(context: GeneratorContext, policy: Policy, scorer: ToxicityScorer, site: str) -> Matrix:
    """Return, per prompt, the gradient (n, d) of the expected score; stored ones are reused.

    Only prompts whose continuations differ in score are read; those of the others are nearly zero.
    """
    telling = policy.telling()
    if len({g.index for g in telling}) < 2:
        raise DataError(
            f"The scores of the scorer {scorer.name} differ between the continuations of fewer than two prompts, so no "
            "step can be credited. Raise policy_prompts, or choose prompts that provoke."
        )
    changes = [np.diff(row) for row in _prefixes(context, scorer, telling)]
    own = {name: context.identity[name] for name in ("model", "tokenizer")}
    rows = []
    for part in _by_prompt(telling, CHUNK):
        chosen, values = [telling[i] for i in part], [changes[i] for i in part]
        facts = {**own, "site": site, "texts": texts_key(chosen), "credits": [row.tolist() for row in values]}
        stages = Stages.of(context.work / "gradients", facts)
        rows.append(stages.get("gradients", partial(_gradients, context, chosen, values, site)).arrays["rows"])
    return np.concatenate(rows)


def _by_prompt(generations: Sequence[Generation], most: int) -> list[list[int]]:
    """Return the indices of ``generations`` in parts of about ``most``, each with all continuations of its prompts."""
    parts: list[list[int]] = []
    for i, g in enumerate(generations):
        new = i == 0 or g.index != generations[i - 1].index
        if not parts or (new and len(parts[-1]) >= most):
            parts.append([])
        parts[-1].append(i)
    return parts


def _gradients(context: GeneratorContext, chosen: list[Generation], changes: list[Any], site: str) -> Contents:
    how: dict[str, Any] = {"sites": [site], "progress": False}
    gradients = lm.credit_gradients(context.model, context.tokenizer, chosen, changes, **how)
    return Contents(KIND, {}, {"rows": gradients[site]})


def texts_key(generations: Sequence[Generation]) -> list[list[Any]]:
    """Return what decides the steps of ``generations``, beside the model: for the key of stored work."""
    return [[g.prompt, list(g.prompt_tokens), list(g.tokens), g.finished] for g in generations]


def spread_out(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most ``most`` of the ``items``, at equal distances."""
    if len(items) <= most:
        return list(items)
    return [items[i * len(items) // most] for i in range(most)]


def read_steps(context: GeneratorContext, generations: Sequence[Generation], site: str) -> list[NDArray[np.float32]]:
    """Return, per continuation, the vectors (steps, d) from which its tokens were drawn; stored ones are reused.

    Vectors of continuations that were written under a steering at this site are those that the steering received.
    """
    own = {name: context.identity[name] for name in ("model", "tokenizer")}
    rows: list[NDArray[np.float32]] = []
    for start in range(0, len(generations), CHUNK):
        part = generations[start : start + CHUNK]
        stages = Stages.of(context.work / "policy", {**own, "site": site, "texts": texts_key(part)})
        stage = stages.get("steps", partial(_states_along, context, part, site))
        vectors = np.asarray(stage.arrays["rows"], dtype=np.float32)
        rows += np.split(vectors, np.cumsum(stage.arrays["steps"])[:-1])
    return rows


def _states_along(context: GeneratorContext, part: Sequence[Generation], site: str) -> Contents:
    states = lm.states_along(context.model, context.tokenizer, part, site=site, progress=False)
    steps = np.array([len(rows) for rows in states])
    return Contents(KIND, {}, {"rows": np.concatenate(states), "steps": steps})
