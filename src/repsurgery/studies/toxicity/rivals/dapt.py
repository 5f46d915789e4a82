"""DAPT: continue the training of the model on the cleanest texts (Gururangan et al., 2020; Gehman et al., 2020)."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar

from repsurgery.scorers import ToxicityScorer, load_scorer, score_texts
from repsurgery.studies.toxicity.decoding.adapters import RECIPE, train_on_texts, with_adapters
from repsurgery.studies.toxicity.decoding.cached_model import CachedModel
from repsurgery.studies.toxicity.decoding.limits import check_limits
from repsurgery.studies.toxicity.decoding.parts import Made, Part, Workshop
from repsurgery.studies.toxicity.decoding.rival import Rival
from repsurgery.studies.toxicity.decoding.sampler import Decoder
from repsurgery.studies.toxicity.generators import GENERATORS, GeneratorContext

__all__ = ["DAPT"]


@GENERATORS.register("dapt")
class DAPT(Rival):
    """Draw from the study's model after more training on the texts of the target that score lowest.

    The study's first scorer orders the texts; the first ``tokens`` tokens of the cleanest are read once. The authors
    train all weights; here they are an adapter on every linear layer, and ``scale`` is how much of it is added.

    Guarantees
    ----------
    With ``scale=0`` it writes what the base writes (test_strength_zero_is_the_base).
    """

    options: ClassVar = {"tokens": 100_000, "scale": 1.0}
    needs: ClassVar[str] = "clean texts, a scorer; one adapter"

    def __init__(self, name: str, context: GeneratorContext, **options: Any) -> None:
        super().__init__(name, context, **options)
        check_limits(name, options, {"scale": (-math.inf, math.inf), "tokens": (1, math.inf)})

    @cached_property
    def scorer(self) -> ToxicityScorer:
        """The scorer that orders the texts: the study's first."""
        return load_scorer(self.context.spec.scorers[0])

    def parts(self) -> Mapping[str, Part]:
        """Return the adapter."""
        scorer = [self.scorer.name, self.scorer.version, self.scorer.digest]
        recipe = {**RECIPE, "tokens": self.chosen["tokens"], "scorer": scorer}
        return {"adapter": Part("adapter of the cleanest texts", self._train, recipe)}

    def _train(self, workshop: Workshop) -> Made:
        spec = self.context.spec
        texts = self.context.texts.fitted[spec.target]
        scores = score_texts(self.scorer, texts).scores
        known = [math.inf if score is None else score for score in scores]
        return train_on_texts(
            self.model,
            self.tokenizer,
            [text for _, text in sorted(zip(known, texts, strict=True), key=lambda pair: pair[0])],
            tokens=self.chosen["tokens"],
            seed=spec.seed,
            workshop=workshop,
            label="training on the cleanest texts",
        )

    def decoder(self) -> Decoder:
        """Return the trained model."""
        return CachedModel(self.trained)

    @contextmanager
    def likelihood_model(self) -> Iterator[Any]:
        """Yield the trained model."""
        yield self.trained

    @cached_property
    def trained(self) -> Any:
        """The model with its adapter."""
        arrays = self.part("adapter").arrays
        scaled = {key: a * self.chosen["scale"] if "lora_B" in key else a for key, a in arrays.items()}
        return with_adapters(self.model, {"adapter": scaled})
