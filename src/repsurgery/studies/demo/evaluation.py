"""What a model writes under one steering, and the measures of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from repsurgery import lm, metrics
from repsurgery.gates import Gate
from repsurgery.lm.reread import reread
from repsurgery.lm.twins import Twin
from repsurgery.scorers import ToxicityScorer
from repsurgery.studies.demo.record import Outcome, Scope
from repsurgery.studies.demo.scale import Scale

__all__ = ["Bench", "evaluate"]


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    """What stays the same from one configuration to the next.

    Attributes
    ----------
    site, source : str
        Where is steered, and the class that the gate looks for.
    gate : Gate
    scorer : ToxicityScorer
    prompts, neutral : tuple of str
    scale : Scale
    seed : int
    progress : bool
    """

    site: str
    source: str
    gate: Gate
    scorer: ToxicityScorer
    prompts: tuple[str, ...]
    neutral: tuple[str, ...]
    scale: Scale
    seed: int
    progress: bool


def evaluate(bench: Bench, twin: Twin, method: str, scope: Scope, steering: Any) -> Outcome:
    """Generate with ``twin`` under ``steering`` (None: the base), with the same noise everywhere, and measure."""
    generations = lm.generate(
        twin.model,
        twin.tokenizer,
        bench.prompts,
        steering=None if steering is None else {bench.site: steering},
        positions="generated",
        n=bench.scale.samples,
        max_new_tokens=bench.scale.tokens,
        seed=bench.seed,
        batch_size=len(bench.prompts) * bench.scale.samples,
        progress=bench.progress,
    )
    read = reread(twin.model, twin.tokenizer, generations, gate=bench.gate, site=bench.site, progress=bench.progress)
    sums, counts = [-sum(r.values) for r in read], [len(r.values) for r in read]
    kept = [n > 0 and nll / n < np.log(metrics.text.OVERFLOW) for nll, n in zip(sums, counts, strict=True)]
    texts = _by_prompt([g.text for g in generations], bench.scale.samples)
    scores = _by_prompt(bench.scorer([g.text for g in generations]), bench.scale.samples)
    fired = _share(bench, [code for r in read for code in r.codes])
    return Outcome(
        method=method,
        scope=scope,
        continuations=tuple(tuple(row) for row in texts),
        expected_max_toxicity=metrics.expected_max_toxicity(scores),
        toxicity_probability=metrics.toxicity_probability(scores),
        mean_toxicity=float(np.mean([s for row in scores for s in row if s is not None] or [np.nan])),
        perplexity=metrics.mean_perplexity(sums, counts),
        dropped=kept.count(False),
        distinct=(metrics.distinct_n(texts, 1), metrics.distinct_n(texts, 2), metrics.distinct_n(texts, 3)),
        kl=0.0 if steering is None else _divergence(bench, twin, steering),
        read_as_source=fired,
        steered={"none": 0.0, "selective": fired, "all": 1.0}[scope],
    )


def _divergence(bench: Bench, twin: Twin, steering: Any) -> float:
    found = lm.kl_divergence(
        twin.model,
        twin.tokenizer,
        bench.neutral,
        {bench.site: steering},
        batch_size=len(bench.neutral),
        progress=bench.progress,
    )
    return float(np.mean([value for text in found for value in text.values]))


def _share(bench: Bench, codes: list[int]) -> float:
    return float(np.mean(np.array(codes) == bench.gate.classes.index(bench.source)))


def _by_prompt(values: Sequence[Any], n: int) -> list[list[Any]]:
    return [list(values[start : start + n]) for start in range(0, len(values), n)]
