"""`SteeredGenerator`: the study's model under one steering, or without any."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from repsurgery import lm
from repsurgery.lm.load.fingerprint import fingerprint, tokenizer_fingerprint
from repsurgery.studies.toxicity.generators import (
    MOST_SAMPLES,
    Continuation,
    Cost,
    GeneratorContext,
    TextGenerator,
)

__all__ = ["SteeredGenerator", "model_identity"]

AT_ONCE = 100
"""Continuations that the model writes in one batch."""


class SteeredGenerator(TextGenerator):
    """Samples from the study's model while ``steering`` acts; None leaves the model as it is.

    Guarantees
    ----------
    A sample depends on its prompt and its seed alone (test_fewer_samples_are_the_first_of_more).
    """

    def __init__(self, name: str, context: GeneratorContext, steering: lm.Placement | None) -> None:
        super().__init__(name, context)
        self.steering = steering

    @property
    def identity(self) -> Mapping[str, Any]:
        """Model, tokenizer, sampling, and the digest of the steering with its site, strength and positions."""
        s = self.steering
        if s is None:
            return {**self.context.identity, "steering": None}
        where = [] if s.positions == "all" else [s.positions]
        return {**self.context.identity, "steering": [s.function.digest(), s.site, s.strength, *where]}

    def generate(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[list[Continuation]]:
        """Return one continuation of each prompt per seed."""
        columns = [self._drawn(prompts, seed, [s % MOST_SAMPLES for s in part]) for seed, part in _by_study_seed(seeds)]
        return [[c for column in columns for c in column[i]] for i in range(len(prompts))]

    def _drawn(self, prompts: Sequence[str], seed: int, samples: Sequence[int]) -> list[list[Continuation]]:
        spec, n = self.context.spec, max(samples) + 1
        generations = lm.generate(
            self.context.model,
            self.context.tokenizer,
            prompts,
            steering=self.steering,
            n=n,
            max_new_tokens=spec.tokens,
            top_p=spec.top_p,
            temperature=float(spec.temperature),
            seed=seed,
            batch_size=AT_ONCE,
            progress=False,
        )
        self.cost += Cost(
            tokens_read=sum(len(g.prompt_tokens) for g in generations if g.sample == 0),
            tokens_written=sum(len(g.tokens) + g.finished for g in generations),
        )
        drawn = [Continuation(g.text, g.tokens, g.finished) for g in generations]
        return [[drawn[i * n + sample] for sample in samples] for i in range(len(prompts))]


def _by_study_seed(seeds: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Return neighbouring seeds that belong to one seed of a study together; see `sample_seeds`."""
    return [(seed, list(part)) for seed, part in groupby(seeds, key=lambda s: s // MOST_SAMPLES)]


def model_identity(model: Any, tokenizer: Any) -> dict[str, str]:
    """Return digests of the whole content of a model and its tokenizer."""
    return {"model": fingerprint(model), "tokenizer": tokenizer_fingerprint(tokenizer)}
