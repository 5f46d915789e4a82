"""From judged continuations to measures with paired intervals over prompts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from repsurgery import metrics
from repsurgery.metrics import Mean
from repsurgery.metrics.significance import enough_resamples
from repsurgery.metrics.text import OVERFLOW
from repsurgery.studies.common.estimate import Estimate

__all__ = ["Judged", "Measured", "Readings", "Scores", "by_judge", "measure"]

Scores = Sequence[Sequence[float | None]]
Readings = Sequence[Sequence[tuple[float, int]]]
"""Negative log-likelihood in nats and tokens of the continuations of each prompt."""
Measured = tuple[dict[str, Estimate], dict[str, Estimate]]
"""The measures of a configuration, and their differences to the reference."""


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """The texts of one configuration, one list per prompt that it continued, and their judgements.

    Attributes
    ----------
    texts : lists of str
        Of the first prompts of the study, or of all.
    toxicity : mapping of scorer to lists of float or None
    fluency : mapping of judge to lists of (negative log-likelihood, tokens)
        Empty lists for prompts that were not read.
    """

    texts: Sequence[Sequence[str]]
    toxicity: Mapping[str, Scores]
    fluency: Mapping[str, Readings]

    def first(self, prompts: int) -> "Judged":
        """Return the texts and judgements of the first ``prompts`` prompts."""
        toxicity = {scorer: rows[:prompts] for scorer, rows in self.toxicity.items()}
        fluency = {judge: rows[:prompts] for judge, rows in self.fluency.items()}
        return Judged(self.texts[:prompts], toxicity, fluency)

    def maxima(self, scorer: str) -> list[float | None]:
        """Return each prompt's highest score, None where there is none."""
        return [max((s for s in row if s is not None), default=None) for row in self.toxicity[scorer]]

    def perplexities(self, judge: str) -> list[list[float]]:
        """Return each prompt's perplexities that enter the mean: those that are defined and below the bound."""
        return [[p for p in (_perplexity(nll, n) for nll, n in row) if p < OVERFLOW] for row in self.fluency[judge]]

    def bits(self, judge: str) -> list[tuple[float, int]]:
        """Return, of each prompt, the bits and characters of the continuations whose perplexity enters the mean."""
        sums = []
        for texts, row in zip(self.texts, self.fluency[judge], strict=True):
            read = [
                (nll, len(text)) for text, (nll, n) in zip(texts, row, strict=False) if _perplexity(nll, n) < OVERFLOW
            ]
            sums.append((math.fsum(nll for nll, _ in read) / math.log(2), sum(length for _, length in read)))
        return sums


def by_judge(name: str, judges: Sequence[str]) -> dict[str, str]:
    """Return the key of the measure ``name`` for each judge: the name itself for the first."""
    return {judge: f"{name}.{judge}" if i else name for i, judge in enumerate(judges)}


def measure(judged: Mapping[str, Judged], *, reference: str, resamples: int, seed: int) -> dict[str, Measured]:
    """Return, per configuration, its measures and their differences to the reference, on the same resampled prompts.

    A measure without a value, such as the toxicity of texts that could not be scored, is left out. A configuration that
    continued only the first prompts is compared with the reference on those prompts.

    Guarantees
    ----------
    Values are those of `repsurgery.metrics` (test_measures_are_those_of_metrics).
    A configuration with fewer prompts has the measures and differences of a study with only those prompts
    (test_fewer_prompts_are_a_study_of_their_own).
    """
    how: Any = {"reference": reference, "resamples": enough_resamples(len(judged) - 1, resamples), "seed": seed}
    n = len(judged[reference].texts)
    results: dict[str, Measured] = {}
    for m in {len(one.texts) for one in judged.values()}:
        first = {name: one.first(m) for name, one in judged.items() if name == reference or len(one.texts) == m}
        found = _measured(first, **how)
        results |= {name: one for name, one in found.items() if name != reference or m == n}
    return {name: results[name] for name in judged}


def _measured(judged: Mapping[str, Judged], *, reference: str, resamples: int, seed: int) -> dict[str, Measured]:
    """Return the measures and differences of configurations that continued the same prompts."""
    results: dict[str, Measured] = {name: ({}, {}) for name in judged}
    n = len(judged[reference].texts)
    for key, mean_of in _measures(judged[reference]).items():
        means = {name: mean_of(one) for name, one in judged.items()}
        means = {name: mean for name, mean in means.items() if math.isfinite(mean(np.ones(n)))}
        if not means:
            continue
        intervals = metrics.paired_bootstrap(
            means, n, resamples=resamples, seed=seed, reference=reference if reference in means else None
        )
        for name, one in intervals.items():
            results[name][0][key] = Estimate.of(one.estimate)
            if one.difference is not None:
                results[name][1][key] = Estimate.of(one.difference, one.p_value)
    return results


def _measures(example: Judged) -> dict[str, Callable[[Judged], Mean]]:
    """Return every measure by its name, as a function of what was judged."""
    by_scorer: dict[str, Callable[[str, Judged], Mean]] = {
        "expected_max_toxicity": partial(_by_prompt, metrics.expected_max_toxicity),
        "toxicity_probability": partial(_by_prompt, metrics.toxicity_probability),
        "mean_toxicity": _all_scores,
    }
    judges = list(example.fluency)
    return {
        **{f"{s}.{name}": partial(mean_of, s) for s in example.toxicity for name, mean_of in by_scorer.items()},
        **{key: partial(_mean_perplexity, judge) for judge, key in by_judge("perplexity", judges).items()},
        **{key: partial(_bits_per_character, judge) for judge, key in by_judge("bits_per_character", judges).items()},
        **{f"distinct.{k}": partial(_distinct, k) for k in (1, 2, 3)},
    }


def _by_prompt(metric: Callable[[Scores], float], scorer: str, judged: Judged) -> Mean:
    return Mean(np.array([metric([row]) for row in judged.toxicity[scorer]]))


def _all_scores(scorer: str, judged: Judged) -> Mean:
    return _pooled([[score for score in row if score is not None] for row in judged.toxicity[scorer]])


def _mean_perplexity(judge: str, judged: Judged) -> Mean:
    return _pooled(judged.perplexities(judge))


def _bits_per_character(judge: str, judged: Judged) -> Mean:
    bits, characters = np.array(judged.bits(judge), dtype=float).T
    return Mean(np.divide(bits, characters, out=np.full(len(bits), math.nan), where=characters > 0), characters)


def _distinct(k: int, judged: Judged) -> Mean:
    return Mean(np.array([metrics.distinct_n([row], k) for row in judged.texts]))


def _pooled(rows: Sequence[Sequence[float]]) -> Mean:
    means = [math.fsum(row) / len(row) if row else math.nan for row in rows]
    return Mean(np.array(means), np.array([float(len(row)) for row in rows]))


def _perplexity(nll: float, tokens: int) -> float:
    mean = nll / tokens if tokens > 0 else math.nan
    return math.exp(mean) if mean < math.log(OVERFLOW) + 1 else math.inf
