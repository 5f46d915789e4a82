"""UDDIA: biases tuned at every token, and texts written again that the base finds unlikely (Yang et al., 2023)."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from repsurgery.checkpoint import digest
from repsurgery.errors import DataError
from repsurgery.lm.batching.batches import entry_device, evaluating, map_batches
from repsurgery.lm.batching.tokens import Tokens
from repsurgery.lm.generate.generate import until_end
from repsurgery.lm.generate.sampling import sample_key
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.studies.toxicity.decoding.biases import BiasTuned, biased_sites
from repsurgery.studies.toxicity.decoding.cached_model import CachedModel
from repsurgery.studies.toxicity.decoding.head import Head, head_part
from repsurgery.studies.toxicity.decoding.limits import check_limits
from repsurgery.studies.toxicity.decoding.lookahead import Lookahead, require_full_attention
from repsurgery.studies.toxicity.decoding.module_hooks import blocks_of
from repsurgery.studies.toxicity.decoding.parts import Made, Part, Workshop
from repsurgery.studies.toxicity.decoding.rival import Rival
from repsurgery.studies.toxicity.decoding.watched import Watched
from repsurgery.studies.toxicity.generators import GENERATORS, GeneratorContext

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

    Attributes
    ----------
    options
        ``lr`` is the step of each bias; with 0 nothing is written again either, since no bias is to blame. Biases are
        added to the linear layers of the last ``layers`` blocks and to the final norm; 0 means half of the blocks.
        Each new try has ``fewer`` blocks less. A ``threshold`` of 0 means the 60th percentile of the perplexities of
        the base's own texts. The distribution p with biases and u without are combined as p^fusion u^(1 - fusion).
        The head is fitted to ``texts`` texts of each label, and the first ``share`` of the prompts are continued.

    Notes
    -----
    A text that was written t times has taken 3 t - 1 extra passes per token: each token is passed without biases, as a
    soft token, and with biases. Backward passes are not counted.

    The authors' code differs in two points. Its biases also act on the soft token, which changes little: after ten
    prompts that invite insults, SmolLM2's mass of twenty rude words fell from .10 to .0003 instead of .0004. It also
    tunes the biases of the norms in the blocks; the same step then moves SmolLM2's distribution twice as far from the
    base (KL 5.0 instead of 2.4 nats), so they are left out.

    Guarantees
    ----------
    With ``lr=0`` it writes what the base writes (test_without_a_step_the_texts_are_those_of_the_base).
    Only what exceeds the threshold is written again (test_only_rows_above_the_threshold_are_written_again).
    The best try is kept where none passes (test_the_best_try_is_kept).
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
    needs: ClassVar[str] = "labelled texts; a linear head; gradients; tries"
    batch_size: ClassVar[int] = 50

    def __init__(self, name: str, context: GeneratorContext, **options: Any) -> None:
        super().__init__(name, context, **options)
        at_least_0 = dict.fromkeys(("lr", "layers", "threshold"), (0, math.inf))
        check_limits(name, options, {**at_least_0, "fewer": (1, math.inf), "fusion": (0, 1), "texts": (2, math.inf)})
        require_full_attention(self.model, name)
        biased_sites(unwrapped(self.model), self._layers)  # refuses a number of layers before anything is trained

    def parts(self) -> Mapping[str, Part]:
        """Return the head, and the threshold unless it is given."""
        parts = {"head": head_part(self.context, self.chosen["texts"])}
        return parts if self.chosen["threshold"] else {**parts, "threshold": self._threshold()}

    def continued(self, rows: Sequence[Tokens], keys: Sequence[bytes]) -> list[Tokens]:
        """Return the first try of each row that passes, or its best one."""
        layers = self._layers
        threshold = self.chosen["threshold"] or float(self.part("threshold").arrays["threshold"][0])
        best: dict[int, tuple[float, Tokens]] = {}
        waiting, tries = list(range(len(rows))), 0
        while waiting and layers > 0:
            drawn = self._tries([rows[i] for i in waiting], [_key_of_try(keys[i], tries) for i in waiting], layers)
            best |= {i: min(best.get(i, new), new) for i, new in zip(waiting, drawn, strict=True)}
            ends = [until_end(tokens, self._ends) for _, tokens in drawn]
            steps = sum(len(tokens) + finished for tokens, finished in ends)
            self.count_passes((PASSES if tries else PASSES - 1) * steps)
            waiting = [i for i in waiting if best[i][0] > threshold and self.chosen["lr"]]
            tries, layers = tries + 1, layers - self.chosen["fewer"]
        return [best[i][1] for i in range(len(rows))]

    @property
    def _layers(self) -> int:
        """The number of blocks of the first try."""
        layers: int = self.chosen["layers"]
        return layers or max(1, len(blocks_of(unwrapped(self.model))) // 2)

    def _tries(self, rows: Sequence[Tokens], keys: Sequence[bytes], layers: int) -> list[tuple[float, Tokens]]:
        """Return the perplexity and the tokens of one try for each row."""
        ahead = Lookahead(self.model, Head.of(self.part("head"), entry_device(self.model)))
        sites = biased_sites(unwrapped(self.model), layers)
        tuned = BiasTuned(ahead, sites, lr=self.chosen["lr"], fusion=self.chosen["fusion"])
        return self._measured(Watched(tuned, lambda _: tuned.clean), rows, keys)

    def _measured(self, decoder: Watched, rows: Sequence[Tokens], keys: Sequence[bytes]) -> list[tuple[float, Tokens]]:
        drawn = self.drawn_by(decoder, rows, keys)
        return list(zip(decoder.perplexities(drawn, self._ends), drawn, strict=True))

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
                own = Watched(CachedModel(self.model))
                return [p for p, _ in self._measured(own, [rows[i] for i in batch], [keys[i] for i in batch])]

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
