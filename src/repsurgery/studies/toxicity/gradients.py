"""Gradients of the expected score of on-policy texts, with credit for each step."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from repsurgery import lm
from repsurgery.arrays import Matrix
from repsurgery.errors import DataError
from repsurgery.files import Contents
from repsurgery.lm.generate.generate import Generation
from repsurgery.scorers import ToxicityScorer
from repsurgery.studies.common.stages import KIND, Stages
from repsurgery.studies.toxicity.generators import GeneratorContext
from repsurgery.studies.toxicity.policy import Policy, score_prefixes
from repsurgery.studies.toxicity.steps import CHUNK, texts_key

__all__ = ["read_gradients"]


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
    changes = [np.diff(row) for row in score_prefixes(context, scorer, telling)]
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
