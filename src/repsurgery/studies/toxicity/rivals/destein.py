"""DeStein: turn the output of every attention head away from the direction in which source texts differ from target."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar

import torch
from torch.nn.functional import normalize

from repsurgery.lm.sites.families import text_config
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.studies.toxicity.decoding.activation_rival import ActivationRival
from repsurgery.studies.toxicity.decoding.label_words import warn_of_labels
from repsurgery.studies.toxicity.decoding.module_hooks import head_sites, hooked
from repsurgery.studies.toxicity.decoding.parts import Made, Part, Workshop
from repsurgery.studies.toxicity.generators import GENERATORS, GeneratorContext

__all__ = ["DeStein", "DeSteinPerHead", "last_eight", "prefixed", "turned"]

PREFIXES = {
    "toxic": "abusive, harmful, negative, obscene, racist, rude and toxic",
    "non-toxic": "kind, polite, positive, respectful and supportive",
}
"""DeStein's words for its two labels; other labels are described by their own name."""


@GENERATORS.register("destein")
class DeStein(ActivationRival):
    """Replace the output x of every head by x̂ − α (1 + max(0, cos(x, d))) d̂, at every position.

    d is the sum over pairs of source state minus target state, where a text's state is the mean over its last eight
    tokens, and each text follows a prefix that describes its label. The result of each head is scaled to length 1, and
    then all heads of the block together to the length that they had. As released, this gives the heads of a block
    equal lengths, so that even a small ``alpha`` changes the model; only 0 leaves it as it is. `DeSteinPerHead` has no
    such jump. The release also multiplies d by 1 + the accuracy of a probe per head, which cancels when d is scaled to
    length 1, so that no probe is trained here. It generates its pairs with the model; here they are labelled texts in
    their seeded order.

    Options: ``alpha``; ``texts``, the number of pairs.

    Guarantees
    ----------
    Positive factors of d change nothing (test_the_accuracy_of_a_probe_cancels).
    The length of the concatenated heads is kept (test_the_length_of_all_heads_together_is_kept).
    """

    options: ClassVar = {"alpha": 0.45, "texts": 20}
    dial: ClassVar[str] = "alpha"
    together: ClassVar[bool] = True

    def __init__(self, name: str, context: GeneratorContext, **options: Any) -> None:
        super().__init__(name, context, **options)
        warn_of_labels(name, context.spec.source, context.spec.target)

    def parts(self) -> Mapping[str, Part]:
        """Return the direction of every block's heads."""
        return {"directions": Part("directions of heads", self._directions, self.recipe)}

    def changed(self, strength: float) -> AbstractContextManager[Any]:
        """Return the block in which every head is turned."""
        directions, heads = self.part("directions").arrays, int(text_config(unwrapped(self.model)).num_attention_heads)
        turn = partial(turned, heads=heads, alpha=strength, together=self.together)
        sites = head_sites(self.model, method="DeStein")
        return hooked({site: partial(turn, direction=torch.tensor(directions[site.name])) for site in sites})

    def _directions(self, workshop: Workshop) -> Made:
        sites = head_sites(self.model, method="DeStein")
        source, target = self.pairs()
        spec = self.context.spec
        texts = [prefixed(text, spec.source) for text in source] + [prefixed(text, spec.target) for text in target]
        states, n = self.states(texts, sites, last_eight, workshop), len(source)
        return {"texts": n}, {name: (X[:n] - X[n:]).sum(axis=0) for name, X in states.items()}


@GENERATORS.register("destein-per-head")
class DeSteinPerHead(DeStein):
    """DeStein where each head keeps its own length, so that the model changes continuously with ``alpha``.

    Guarantees
    ----------
    The length of every head is kept (test_each_head_can_keep_its_length).
    A small ``alpha`` changes the model little (test_only_as_released_does_a_small_alpha_matter).
    """

    together: ClassVar[bool] = False


def prefixed(text: str, label: str) -> str:
    """Return ``text`` after the sentence that describes its label."""
    return f"The following text is {PREFIXES.get(label, label)}: {text.strip(' .')}"


def last_eight(state: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mean of each text's states over its last eight tokens, in float32: a `Pool`."""
    after = mask.sum(dim=1, keepdim=True) - mask.cumsum(dim=1)
    chosen = ((after < 8) & (mask == 1)).unsqueeze(-1)
    return (state.float() * chosen).sum(dim=1) / chosen.sum(dim=1)


def turned(state: torch.Tensor, direction: torch.Tensor, *, heads: int, alpha: float, together: bool) -> torch.Tensor:
    """Return states (..., d) with each of the ``heads`` slices turned away from that slice of ``direction`` (d,).

    Parameters
    ----------
    together : bool
        Whether the slices get equal lengths and together keep theirs; otherwise each slice keeps its own.
    """
    length = partial(torch.linalg.vector_norm, dim=-1, keepdim=True)
    x = state.float().reshape(*state.shape[:-1], heads, -1)
    d = normalize(direction.to(x.device).reshape(heads, -1), dim=-1)
    unit = normalize(x, dim=-1)
    cosine = (unit * d).sum(dim=-1, keepdim=True)
    new = normalize(unit - alpha * (1 + cosine.clamp(min=0)) * d, dim=-1)
    if together:
        y: torch.Tensor = normalize(new.reshape(state.shape), dim=-1) * length(state.float())
    else:
        y = (new * length(x)).reshape(state.shape)
    return y.to(state.dtype)
