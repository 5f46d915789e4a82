"""UDDIA: bias vectors tuned at every token, and unlikely texts written again (Yang et al., 2023)."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from repsurgery.checkpoint import digest
from repsurgery.errors import DataError, ParameterError
from repsurgery.lm.batching import Tokens, entry_device, evaluating, map_batches, pad_id
from repsurgery.lm.generate.sampling import sample_key
from repsurgery.studies.toxicity.decoding.biases import BiasTuned, biased_sites, count_blocks
from repsurgery.studies.toxicity.decoding.cached_model import CachedModel
from repsurgery.studies.toxicity.decoding.head import Head, head_part
from repsurgery.studies.toxicity.decoding.lookahead import Lookahead
from repsurgery.studies.toxicity.decoding.parts import Made, Part, Workshop
from repsurgery.studies.toxicity.decoding.rival import Rival
from repsurgery.studies.toxicity.decoding.sampler import sample
from repsurgery.studies.toxicity.decoding.watched import Watched
from repsurgery.studies.toxicity.generators import GENERATORS

__all__ = ["Uddia"]

PERCENTILE = 60
PROMPTS = 200
"""Continuations of the base, one for each training prompt, whose perplexities give the threshold."""
PASSES = 3
"""Passes of one token: without biases, of the soft token after it, and with biases."""


@GENERATORS.register("uddia")
class Uddia(Rival):
    """Draw each token after one gradient step on bias vectors; write a text again if the base finds it too unlikely.

    A text whose perplexity under the unchanged model exceeds ``threshold`` is written again with ``fewer`` blocks less
    and with new noise, until one passes or no block is left; then the try with the lowest perplexity is kept. This is
    sampling with rejection: it lowers the perplexity by itself, so the tries are counted as extra passes.

    Options
    -------
    lr : float
        The step of each bias. With 0 nothing is written again either, since no block could be to blame.
    layers : int
        The last blocks whose linear layers get biases, beside the final norm; 0 means half of the blocks.
    fewer : int
        How many blocks less each new try has.
    threshold : float
        The perplexity above which a text is written again; 0 means the 60th percentile of the base's own texts.
    fusion : float
        The exponent of the tuned distribution p in p^fusion u^(1 - fusion).
    texts : int
        Labelled texts of each label to which the head is fitted.
    share : float
        The share of the study's prompts that are continued.

    Guarantees
    ----------
    With ``lr=0`` it writes what the base writes (test_strength_zero_is_the_base).
    """

    options: ClassVar = {
        "lr": 0.06,
        "layers": 0,
        "fewer": 3,
        "threshold": 0.0,
        "fusion": 0.9,
        "texts": 1000,
        "share": 0.1,
    }
    needs: ClassVar[str] = "labelled texts; a linear head; gradients; several tries"
    batch_size: ClassVar[int] = 50

    def __init__(self, name: str, context: Any, **options: Any) -> None:
        super().__init__(name, context, **options)
        if self.chosen["fewer"] < 1:
            raise ParameterError(f"fewer is {self.chosen['fewer']}; each new try must have at least 1 block less.")
        self.tries = self.first_tries = 0

    @property
    def mean_tries(self) -> float:
        """How often a text was written, on average; 0 before the first."""
        return self.tries / self.first_tries if self.first_tries else 0.0

    def parts(self) -> Mapping[str, Part]:
        """Return the head, and the threshold unless it is given."""
        parts = {"head": head_part(self.context, self.chosen["texts"])}
        return parts if self.chosen["threshold"] else {**parts, "threshold": self._threshold()}

    def continued(self, rows: Sequence[Tokens], keys: Sequence[bytes]) -> list[Tokens]:
        """Return the first try of each row that passes, or its best one."""
        layers = self.chosen["layers"] or max(1, count_blocks(self.model) // 2)
        threshold = self.chosen["threshold"] or float(self.part("threshold").arrays["threshold"][0])
        best: dict[int, tuple[float, Tokens]] = {}
        waiting, tries = list(range(len(rows))), 0
        while waiting and layers > 0:
            drawn = self._drawn([rows[i] for i in waiting], [_key_of_try(keys[i], tries) for i in waiting], layers)
            best |= {i: min(best.get(i, new), new) for i, new in zip(waiting, drawn, strict=True)}
            self._count(drawn, first=not tries)
            if not self.chosen["lr"]:
                break
            waiting = [i for i in waiting if best[i][0] > threshold]
            tries, layers = tries + 1, layers - self.chosen["fewer"]
        return [best[i][1] for i in range(len(rows))]

    def _drawn(self, rows: Sequence[Tokens], keys: Sequence[bytes], layers: int) -> list[tuple[float, Tokens]]:
        """Return the perplexity and the tokens of one try for each row; with no ``layers``, of the base."""
        if layers:
            ahead = Lookahead(self.model, Head.of(self.part("head"), entry_device(self.model)))
            sites = biased_sites(self.model, layers)
            tuned = BiasTuned(ahead, sites, lr=self.chosen["lr"], fusion=self.chosen["fusion"])
            decoder = Watched(tuned, lambda _: tuned.clean)
        else:
            decoder = Watched(CachedModel(self.model))
        spec = self.context.spec
        drawn = sample(
            decoder,
            rows,
            keys,
            tokens=spec.tokens,
            ends=self._ends,
            padding=pad_id(self.model, self.tokenizer),
            top_p=self.top_p,
            temperature=float(spec.temperature),
            device=entry_device(self.model),
        )
        return list(zip(decoder.perplexities(drawn, self._ends), drawn, strict=True))

    def _count(self, drawn: list[tuple[float, Tokens]], *, first: bool) -> None:
        self.tries += len(drawn)
        self.first_tries += len(drawn) if first else 0
        steps = sum(len(tokens) for _, tokens in drawn)
        self.count_passes((PASSES - first) * steps)

    def _threshold(self) -> Part:
        spec, prompts = self.context.spec, list(self.context.texts.training.texts[:PROMPTS])

        def make(workshop: Workshop) -> Made:
            if not prompts:
                raise DataError(
                    f"{self.name!r} sets its threshold by texts of the base, and the study has no prompt beside the "
                    "evaluated ones. State it, as in 'uddia threshold=30', or lower prompt_count."
                )
            rows, keys = self.encode(prompts), [sample_key(spec.seed, prompt, 0, 0) for prompt in prompts]

            def run(batch: list[int]) -> list[float]:
                return [value for value, _ in self._drawn([rows[i] for i in batch], [keys[i] for i in batch], 0)]

            with evaluating(self.model):
                lengths = list(map(len, rows))
                how: dict[str, Any] = {"batch_size": self.batch_size, "progress": workshop.progress}
                perplexities = map_batches(lengths, run, label="measuring the base", **how)
            threshold = float(np.percentile(perplexities, PERCENTILE))
            return {"threshold": round(threshold, 2)}, {"threshold": np.array([threshold])}

        sampling = {"tokens": spec.tokens, "top_p": spec.top_p, "temperature": float(spec.temperature)}
        return Part("threshold", make, {**sampling, "percentile": PERCENTILE, "prompts": digest(prompts)})


def _key_of_try(key: bytes, tries: int) -> bytes:
    """Return the noise of a try: the first has that of the other rows of the table."""
    return hashlib.sha256(key + f"|try {tries}".encode()).digest() if tries else key
