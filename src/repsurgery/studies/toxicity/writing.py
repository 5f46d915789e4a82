"""Let a model continue prompts under one steering, prompt by prompt, so that nothing is written twice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repsurgery import lm
from repsurgery.checkpoint import journal_of
from repsurgery.lm.generate.generate import Generation
from repsurgery.lm.load.fingerprint import fingerprint, tokenizer_fingerprint
from repsurgery.lm.twins import Twin
from repsurgery.steering.function import SteeringFunction

__all__ = ["Sampling", "Steered", "model_identity", "texts_identity", "write"]

LAYOUT = 1
"""Raised when the same job would write other texts, so that those of an older layout are left alone."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How continuations are drawn: nucleus, temperature, most new tokens, seed."""

    top_p: float
    temperature: float
    tokens: int
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Steered:
    """A steering function at its strength, where it acts, and that strength."""

    function: SteeringFunction
    site: str
    strength: float

    @property
    def key(self) -> str:
        """What tells it from other steerings."""
        return f"{self.function.digest()}|{self.site}|{self.strength!r}"


def texts_identity(model: Mapping[str, str], steering: Steered | None, sampling: Sampling) -> dict[str, Any]:
    """Return what decides the texts, all but the prompts; ``model`` is that of `model_identity`."""
    how = None if steering is None else [steering.function.digest(), steering.site, steering.strength]
    return {**model, "steering": how, **asdict(sampling), "layout": LAYOUT}


def model_identity(twin: Twin) -> dict[str, str]:
    """Return what tells this model and tokenizer from others: digests of all their content, read once per step."""
    return {"model": fingerprint(twin.model), "tokenizer": tokenizer_fingerprint(twin.tokenizer)}


def write(
    twin: Twin,
    prompts: Sequence[str],
    samples: int,
    *,
    steering: Steered | None,
    sampling: Sampling,
    folder: Path,
    identity: Mapping[str, str] | None = None,
    batch_size: int = 100,
    tell: Callable[[int], None] = lambda prompts: None,
) -> list[list[Generation]]:
    """Return ``samples`` continuations of each of the distinct ``prompts``, in order.

    What was written before by the same model, steering and sampling is taken from ``folder``; a sample depends on its
    prompt and number alone, so fewer samples are the first of more.

    Parameters
    ----------
    steering : Steered or None
        None: the base.
    identity : mapping or None
        The `model_identity` of the twin, where it is known already.
    batch_size : int
        Continuations at once.
    tell : function of a number
        Told how many prompts were done.
    """
    journal = journal_of(folder, "texts", texts_identity(identity or model_identity(twin), steering, sampling))
    waiting = [prompt for prompt in prompts if len(journal.get(prompt, ())) < samples]
    tell(len(prompts) - len(waiting))
    # longest first: little padding, and the worst case comes at once
    waiting.sort(key=len, reverse=True)
    at_once = max(1, batch_size // samples)
    for start in range(0, len(waiting), at_once):
        part = waiting[start : start + at_once]
        found = lm.generate(
            twin.model,
            twin.tokenizer,
            part,
            steering=None if steering is None else {steering.site: steering.function},
            n=samples,
            max_new_tokens=sampling.tokens,
            top_p=sampling.top_p,
            temperature=sampling.temperature,
            seed=sampling.seed,
            batch_size=batch_size,
            progress=False,
        )
        journal.note({p: [_plain(g) for g in found if g.index == i] for i, p in enumerate(part)})
        tell(len(part))
    return [_generations(prompt, i, journal[prompt][:samples]) for i, prompt in enumerate(prompts)]


def _plain(g: Generation) -> list[Any]:
    return [g.text, list(g.tokens), g.finished]


def _generations(prompt: str, index: int, held: list[list[Any]]) -> list[Generation]:
    return [Generation(prompt, index, s, text, tuple(tokens), end) for s, (text, tokens, end) in enumerate(held)]
