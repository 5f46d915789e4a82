"""DAPT: continue the training of the model on the cleanest texts (Gururangan et al., 2020; Gehman et al., 2020)."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from repsurgery.scorers import load_scorer, score_texts
from repsurgery.studies.toxicity.decoding.adapters import RECIPE, train_on_texts, with_adapters
from repsurgery.studies.toxicity.decoding.cached_model import CachedModel
from repsurgery.studies.toxicity.decoding.parts import Made, Part, Workshop
from repsurgery.studies.toxicity.decoding.rival import Rival
from repsurgery.studies.toxicity.decoding.sampler import Decoder
from repsurgery.studies.toxicity.generators import GENERATORS

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

    def parts(self) -> Mapping[str, Part]:
        """Return the adapter."""
        spec = self.context.spec
        recipe = {**RECIPE, "tokens": self.chosen["tokens"], "scorer": spec.scorers[0]}
        return {"adapter": Part("adapter of the cleanest texts", self._train, recipe)}

    def _train(self, workshop: Workshop) -> Made:
        spec = self.context.spec
        texts = self.context.texts.fitted[spec.target]
        scores = score_texts(load_scorer(spec.scorers[0]), texts).scores
        order = sorted(range(len(texts)), key=lambda i: math.inf if scores[i] is None else scores[i])
        return train_on_texts(
            self.model,
            self.tokenizer,
            [texts[i] for i in order],
            tokens=self.chosen["tokens"],
            seed=spec.seed,
            workshop=workshop,
            label="training on the cleanest texts",
        )

    def decoder(self) -> Decoder:
        """Return the trained model."""
        return CachedModel(self.trained())

    @contextmanager
    def likelihood_model(self) -> Iterator[Any]:
        """Yield the trained model."""
        yield self.trained()

    def trained(self) -> Any:
        """Return the model with its adapter."""
        if self._trained is None:
            arrays = self.part("adapter").arrays
            scaled = {key: a * self.chosen["scale"] if "lora_B" in key else a for key, a in arrays.items()}
            self._trained = with_adapters(self.model, {"adapter": scaled})
        return self._trained

    _trained: Any = None
