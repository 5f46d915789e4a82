"""PPLM: move the cached keys and values towards what a linear head calls the target (Dathathri et al., 2020)."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from repsurgery.lm.batching.batches import entry_device
from repsurgery.studies.toxicity.decoding.head import Head, head_part
from repsurgery.studies.toxicity.decoding.limits import check_limits
from repsurgery.studies.toxicity.decoding.lookahead import (
    KeysAndValues,
    Lookahead,
    Passed,
    fused,
    require_full_attention,
)
from repsurgery.studies.toxicity.decoding.parts import Part
from repsurgery.studies.toxicity.decoding.rival import Rival
from repsurgery.studies.toxicity.decoding.sampler import Decoder
from repsurgery.studies.toxicity.generators import GENERATORS, GeneratorContext

__all__ = ["Perturbed", "Pplm", "unit_gradients"]

TINY = 1e-15
"""Added to the norm of a gradient, as in the authors' code: a row without a past has no gradient and is not moved."""


@GENERATORS.register("pplm")
class Pplm(Rival):
    """Draw each token after ``iterations`` gradient steps on the keys and values of the text before it.

    Attributes
    ----------
    options
        Each of the ``iterations`` moves the keys and values of one block and row by ``step``, along the gradient of the
        head's loss plus ``kl`` times KL(p ‖ u). The perturbed distribution p and the unchanged u are combined as
        p^fusion u^(1 - fusion). The head is fitted to ``texts`` texts of each label, and the first ``share`` of the
        prompts are continued.

    Notes
    -----
    Every gradient is divided by its norm, however small it is. Where the head is certain already, its direction is
    that of rounding errors, so that in float32 a long text may depend on its batch.

    Guarantees
    ----------
    With ``step=0`` it writes what the base writes (test_without_a_step_the_texts_are_those_of_the_base).
    A row's logits are those of the row alone (test_a_row_is_moved_as_if_it_were_alone).
    The first step is that of the formula without a cache (test_two_tokens_by_hand).
    """

    options: ClassVar = {"step": 0.2, "iterations": 10, "fusion": 0.9, "kl": 0.01, "texts": 1000, "share": 0.1}
    needs: ClassVar[str] = "labelled texts; a linear head; gradients"
    batch_size: ClassVar[int] = 50

    def __init__(self, name: str, context: GeneratorContext, **options: Any) -> None:
        super().__init__(name, context, **options)
        at_least_0 = dict.fromkeys(("step", "iterations", "kl"), (0, math.inf))
        check_limits(name, options, {**at_least_0, "fusion": (0, 1), "texts": (2, math.inf)})
        require_full_attention(self.model, name)

    @property
    def extra_passes(self) -> float:
        """One with the perturbed cache, and two in every iteration."""
        return 1.0 + 2.0 * float(self.chosen["iterations"])

    def parts(self) -> Mapping[str, Part]:
        """Return the head."""
        return {"head": head_part(self.context, self.chosen["texts"])}

    def decoder(self) -> Decoder:
        """Return the model with a perturbed cache."""
        return Perturbed(self, Head.of(self.part("head"), entry_device(self.model)))


class Perturbed:
    """A model whose cache is perturbed before each token, and stays so.

    The unchanged model's cache is kept beside it. It gives the unchanged distribution and the states of the text by one
    pass per token, where the authors' code reads the whole text again.
    """

    def __init__(self, rival: Pplm, head: Head) -> None:
        self._rival, self._ahead = rival, Lookahead(rival.model, head)
        self._past: KeysAndValues = []

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, vocabulary) after prompts (n, length), which are padded on the left."""
        last = self._ahead.start(ids, mask)
        self._past = self._ahead.past
        return self.step(last)

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, vocabulary) after one more token (n,) of each row."""
        clean = self._ahead.last(tokens, self._ahead.past)
        # a first token has no keys and values before it that could be moved
        changed = self._ahead.last(tokens, self.moved(tokens, clean)) if self._past else clean
        self._past = changed.past
        self._ahead.accept(clean)
        return fused(changed.logits, clean.logits, self._rival.chosen["fusion"])

    def moved(self, tokens: torch.Tensor, clean: Passed) -> KeysAndValues:
        """Return the keys and values before the last token (n,) after all gradient steps.

        Parameters
        ----------
        clean : Passed
            What that token gives in the unchanged model.
        """
        past, log_u = self._past, clean.logits.log_softmax(dim=-1)
        for _ in range(self._rival.chosen["iterations"]):
            with torch.enable_grad():
                past = [(k.detach().requires_grad_(), v.detach().requires_grad_()) for k, v in past]
                seen = self._ahead.last(tokens, past)
                log_p = seen.logits.log_softmax(dim=-1)
                divergence = (log_p.exp() * (log_p - log_u)).sum(dim=-1)
                loss = self._rival.chosen["kl"] * divergence - self._ahead.log_p(seen, clean.past)
                flat = torch.autograd.grad(loss.sum(), [tensor for pair in past for tensor in pair])
            units = unit_gradients(list(zip(flat[::2], flat[1::2], strict=True)))
            size = self._rival.chosen["step"]
            past = [(k - size * g, v - size * h) for (k, v), (g, h) in zip(past, units, strict=True)]
        return [(k.detach(), v.detach()) for k, v in past]


def unit_gradients(gradients: KeysAndValues) -> KeysAndValues:
    """Return gradients of keys and values (n, heads, length, width), per block and row divided by their common norm."""
    units = []
    for g, h in gradients:
        squares = g.square().sum(dim=(1, 2, 3), keepdim=True) + h.square().sum(dim=(1, 2, 3), keepdim=True)
        norm = squares.sqrt() + TINY
        units.append((g / norm, h / norm))
    return units
