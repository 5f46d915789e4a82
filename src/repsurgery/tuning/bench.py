"""Measurements of a steering: what the model writes under it, how it is judged, and what it costs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from repsurgery import lm
from repsurgery.arrays import Vector
from repsurgery.certificates import EffectCertificate
from repsurgery.checkpoint import journal_of, keyed_folder
from repsurgery.datasets import Documents
from repsurgery.errors import NonFiniteError
from repsurgery.lm.batching.tokens import context_length
from repsurgery.lm.generate.generate import Generation
from repsurgery.lm.load.fingerprint import fingerprint, tokenizer_fingerprint
from repsurgery.lm.policy.scores import Scores
from repsurgery.lm.policy.writing import write
from repsurgery.lm.twins import Twin, each
from repsurgery.metrics import Mean, paired_bootstrap
from repsurgery.steering.function import SteeringFunction
from repsurgery.tuning.plan import Measure, Plan

__all__ = ["Bench", "Effect", "effect_of", "price_along", "priced"]

HEADROOM = 0.97
"""The share of the budget at which a price is placed, because other prompts and documents differ a little."""
PART = 12
"""Prompts that one core continues at a time."""
WINDOW = 512
"""Tokens of WikiText that are read at once, unless the model reads fewer."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The measure of the base and under a steering, and their difference with a 95 % interval and sign-flip test.

    Attributes
    ----------
    base, steered : float
    value, low, high : float
        Steered − base; negative is good.
    p : float
        Of the test that swaps the two values of each prompt at random.
    prompts : int
    """

    base: float
    steered: float
    value: float
    low: float
    high: float
    p: float
    prompts: int

    def to_dict(self) -> dict[str, float]:
        """Return value, bounds and p-value by name."""
        return {"value": self.value, "low": self.low, "high": self.high, "p": self.p}


def effect_of(base: Vector, steered: Vector) -> Effect:
    """Return the effect from one value for each prompt, (n,) each, without and with steering."""
    found = paired_bootstrap(
        {"base": Mean(base), "steered": Mean(steered)}, len(base), reference="base", resamples=2000
    )
    before, after = found["base"].estimate.value, found["steered"]
    difference, p = after.difference, after.p_value
    assert difference is not None and p is not None
    # a difference of two scores between 0 and 1 is at most 1
    low, high = max(-1.0, difference.low), min(1.0, difference.high)
    return Effect(before, after.estimate.value, difference.value, low, high, p, len(base))


@dataclass(frozen=True, eq=False)
class Bench:
    """The model on all cores, the judges and the documents; everything measured is stored in ``work``.

    Attributes
    ----------
    pair : sequence of Twin
    judge : scorer
    plan : Plan
    measure : {"share", "mean"}
    seed : int
    work : path
    documents : Documents or None
        WikiText; None where it is not available.
    sampling : mapping
        Arguments of `lm.generate` that differ from their defaults, such as top_p.
    """

    pair: Sequence[Twin]
    judge: Any
    plan: Plan
    measure: Measure
    seed: int
    work: Path
    documents: Documents | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    _scores: dict[str, Scores] = field(default_factory=dict)

    @cached_property
    def identity(self) -> dict[str, str]:
        """Digests of the model and its tokenizer."""
        twin = self.pair[0]
        return {"model": fingerprint(twin.model), "tokenizer": tokenizer_fingerprint(twin.tokenizer)}

    def written(
        self, prompts: Sequence[str], placed: lm.Placement | None, *, samples: int | None = None
    ) -> list[Generation]:
        """Return the continuations of ``prompts``, in order; equal noise with and without steering.

        They are stored for each prompt, and never written twice.
        """
        sampling = {**self.sampling, "max_new_tokens": self.plan.tokens, "seed": self.seed}
        identity = {**self.identity, **sampling, "steering": None if placed is None else placed.key}
        folder = keyed_folder(self.work / "written", identity)

        samples = samples or self.plan.samples
        cores = len(self.pair)
        count = cores * math.ceil(len(prompts) / (cores * PART))
        parts = [(start, prompts[start::count]) for start in range(count) if prompts[start::count]]

        def run(twin: Twin, part: tuple[int, Sequence[str]]) -> list[Generation]:
            how: dict[str, Any] = {"steering": placed, "batch_size": PART * samples, "progress": False, **sampling}
            return write(twin.model, twin.tokenizer, part[1], samples, folder=folder, **how)

        rows = each(run, parts, self.pair)
        found = [
            replace(g, index=start + count * g.index) for (start, _), row in zip(parts, rows, strict=True) for g in row
        ]
        return sorted(found, key=lambda g: (g.index, g.sample))

    def values(self, generations: Sequence[Generation], judge: Any = None) -> Vector:
        """Return the measure of each prompt, (n,); a continuation without anything to score counts 0."""
        scores = self.scores(generations, judge)
        judged = [float(s >= 0.5) if self.measure == "share" else s for s in scores]
        by_prompt: dict[int, list[float]] = {}
        for g, value in zip(generations, judged, strict=True):
            by_prompt.setdefault(g.index, []).append(value)
        return np.array([np.mean(by_prompt[index]) for index in sorted(by_prompt)])

    def scores(self, generations: Sequence[Generation], judge: Any = None) -> list[float]:
        """Return the score of each continuation; 0 where there is nothing to score."""
        one = self.judge if judge is None else judge
        store = self._scores.setdefault(one.digest, Scores(one, self.work))
        return [score or 0.0 for score in store.of([g.text for g in generations], progress=False)]

    def effect(self, prompts: Sequence[str], placed: lm.Placement, judge: Any = None) -> Effect:
        """Return the effect on ``prompts``."""
        base, steered = (self.values(self.written(prompts, one), judge) for one in (None, placed))
        return effect_of(base, steered)

    def kl(self, prompts: Sequence[str], placed: lm.Placement, *, samples: int | None = None) -> float:
        """Return KL(base ‖ steered) in nats, the mean over all tokens of the base's continuations of ``prompts``.

        The end token counts, also that of a continuation without any other.

        ``samples`` limits it to the first continuations of each prompt. Infinite where the steered states leave the
        number range of the model.
        """
        most = samples or self.plan.samples
        return self.kl_along([g for g in self.written(prompts, None) if g.sample < most], placed)

    def kl_along(self, generations: Sequence[Generation], placed: lm.Placement) -> float:
        """Return KL(base ‖ steered) in nats, the mean over all steps of ``generations``."""
        facts = {**self.identity, "tokens": [[list(g.prompt_tokens), list(g.tokens)] for g in generations]}
        journal = journal_of(self.work / "prices", "kl", facts)
        if placed.key not in journal:
            found = price_along(self.pair, generations, placed)
            journal.note({placed.key: None if math.isinf(found) else found})
        return math.inf if journal[placed.key] is None else float(journal[placed.key])

    def wikitext_ratio(self, placed: lm.Placement, documents: int) -> float | None:
        """Return the perplexity of WikiText under ``placed``, divided by that of the base; None without WikiText.

        It is measured on the first ``documents`` documents, or on all if there are fewer.
        """
        if self.documents is None:
            return None
        chosen = self.documents.first(min(documents, len(self.documents)))
        journal = journal_of(self.work / "prices", "wikitext", {**self.identity, "documents": chosen.digest})
        missing = {key: one for key, one in (("base", None), (placed.key, placed)) if key not in journal}
        if missing:
            twin = self.pair[0]
            try:
                found = lm.document_perplexity(
                    twin.model,
                    twin.tokenizer,
                    chosen.detokenised,
                    missing,
                    words=chosen.words,
                    bytes=chosen.bytes,
                    max_length=min(WINDOW, context_length(twin.model, twin.tokenizer)),
                    progress=False,
                )
            except NonFiniteError:
                return math.inf
            journal.note({key: one.word_perplexity for key, one in found.items()})
        return float(journal[placed.key]) / float(journal["base"])

    def within_wikitext(self, placed: lm.Placement, most: float, documents: int) -> tuple[lm.Placement, float | None]:
        """Return ``placed`` at a strength whose ratio is at most ``most``, its own if possible, and the ratio."""
        while (ratio := self.wikitext_ratio(placed, documents)) is not None and ratio > most:
            finite = math.isfinite(ratio)
            placed = placed.scaled(math.sqrt(HEADROOM * math.log(most) / math.log(ratio)) if finite else 0.25)
        return placed, ratio


def price_along(pair: Sequence[Twin], generations: Sequence[Generation], placed: lm.Placement) -> float:
    """Return KL(base ‖ steered) in nats, the mean over all steps of ``generations``, on all cores.

    Infinite where the steered states leave the number range of the model.
    """

    def run(twin: Twin, part: Sequence[Generation]) -> list[float]:
        how: dict[str, Any] = {"direction": "base-steered", "batch_size": 16, "progress": False}
        found = lm.kl_divergence(twin.model, twin.tokenizer, part, placed, **how)
        return [value for one in found for value in one.values]

    cores = len(pair)
    try:
        parts = each(run, [generations[i::cores] for i in range(cores) if generations[i::cores]], pair)
    except NonFiniteError:
        return math.inf
    # a divergence of rounding errors may be slightly below 0
    return max(0.0, float(np.mean([value for part in parts for value in part])))


def priced(placed: lm.Placement, kl: float) -> SteeringFunction:
    """Return the function of ``placed`` with a certificate whose price is ``kl`` at this strength."""
    function, certificate = placed.function, placed.function.certificate
    if not isinstance(certificate, EffectCertificate) or not 0 < kl < math.inf:
        return function
    # rounded, so that a steering that is made again is the same file
    return function.sealed(certificate.priced(float(f"{kl / placed.strength**2:.6g}")))
