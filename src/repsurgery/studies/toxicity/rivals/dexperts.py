"""DExperts: add the difference of an expert's and an anti-expert's logits (Liu et al., 2021)."""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import torch

from repsurgery.studies.toxicity.decoding.adapters import (
    BASE_ROWS,
    RECIPE,
    adapted_rows,
    train_on_texts,
    with_adapters,
)
from repsurgery.studies.toxicity.decoding.limits import check_limits
from repsurgery.studies.toxicity.decoding.parts import Made, Part, Workshop
from repsurgery.studies.toxicity.decoding.rival import Rival
from repsurgery.studies.toxicity.decoding.sampler import Decoder, nucleus
from repsurgery.studies.toxicity.generators import GENERATORS, GeneratorContext

__all__ = ["DExperts", "ensemble"]

EXPERT, ANTI_EXPERT = "expert", "anti-expert"


def ensemble(
    base: torch.Tensor, expert: torch.Tensor, anti: torch.Tensor, alpha: float, kept: torch.Tensor
) -> torch.Tensor:
    """Return base + alpha (expert - anti) for the tokens ``kept``, -inf for others; every argument (n, vocabulary)."""
    return (base + alpha * (expert - anti)).masked_fill(~kept, -torch.inf)


@GENERATORS.register("dexperts")
class DExperts(Rival):
    """Draw from softmax(base + alpha (expert - anti-expert)) within the nucleus of the base.

    Expert and anti-expert are the study's model with an adapter each, trained on texts of the target and of the source.
    The three read one batch, each with its own rows of the cache. Every token of the base's nucleus may be drawn: as in
    the authors' code, there is no second nucleus after the sum.

    Guarantees
    ----------
    With ``alpha=0`` it writes what the base writes (test_strength_zero_is_the_base).
    """

    options: ClassVar = {"alpha": 2.0, "tokens": 100_000}
    needs: ClassVar[str] = "labelled texts; two adapters"

    def __init__(self, name: str, context: GeneratorContext, **options: Any) -> None:
        super().__init__(name, context, **options)
        check_limits(name, options, {"alpha": (-math.inf, math.inf), "tokens": (1, math.inf)})

    @property
    def top_p(self) -> float:
        """1: the decoder removes what is not in the nucleus of the base."""
        return 1.0

    @property
    def extra_passes(self) -> float:
        """Two: of the expert and of the anti-expert."""
        return 2.0

    def parts(self) -> Mapping[str, Part]:
        """Return the two adapters."""
        spec = self.context.spec
        return {
            EXPERT: self._adapter(EXPERT, spec.target),
            ANTI_EXPERT: self._adapter(ANTI_EXPERT, spec.source),
        }

    def _adapter(self, name: str, label: str) -> Part:
        def make(workshop: Workshop) -> Made:
            return train_on_texts(
                self.model,
                self.tokenizer,
                self.context.texts.fitted[label],
                tokens=self.chosen["tokens"],
                seed=self.context.spec.seed,
                workshop=workshop,
                label=f"training the {name}",
            )

        return Part(f"adapter of {label}", make, {**RECIPE, "tokens": self.chosen["tokens"]})

    def decoder(self) -> Decoder:
        """Return the ensemble."""
        return _Ensemble(self)

    @cached_property
    def adapted(self) -> Any:
        """The model with both adapters."""
        return with_adapters(self.model, {name: self.part(name).arrays for name in (EXPERT, ANTI_EXPERT)})


class _Ensemble:
    three: Decoder

    def __init__(self, rival: DExperts) -> None:
        self.rival = rival

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        names = [name for name in (BASE_ROWS, EXPERT, ANTI_EXPERT) for _ in ids]
        self.three = adapted_rows(self.rival.adapted, names)
        return self._combined(self.three.read(ids.repeat(3, 1), mask.repeat(3, 1)))

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._combined(self.three.step(tokens.repeat(3)))

    def _combined(self, logits: torch.Tensor) -> torch.Tensor:
        spec = self.rival.context.spec
        base, expert, anti = logits.chunk(3)
        kept = nucleus(base, spec.top_p, float(spec.temperature))
        return ensemble(base, expert, anti, self.rival.chosen["alpha"], kept)
