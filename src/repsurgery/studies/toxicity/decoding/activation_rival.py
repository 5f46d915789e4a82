"""`ActivationRival`: a rival that fits something on the states of labelled texts and changes states by hooks."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import DataError
from repsurgery.lm.batching.tokens import context_length
from repsurgery.lm.sites.names import Site
from repsurgery.studies.toxicity.decoding.limits import check_limits
from repsurgery.studies.toxicity.decoding.module_hooks import LONGEST, Pool, pooled_states
from repsurgery.studies.toxicity.decoding.parts import Workshop
from repsurgery.studies.toxicity.decoding.rival import Rival
from repsurgery.studies.toxicity.generators import GeneratorContext

__all__ = ["ActivationRival"]


class ActivationRival(Rival):
    """The study's model with hooks on some of its modules.

    A method overrides `parts` and `changed`, and names its strength.

    Attributes
    ----------
    dial : str
        The option that is the method's strength. At 0 there are no hooks, so that the texts are the base's.
    """

    changes_model: ClassVar[bool] = True
    needs: ClassVar[str] = "labelled texts"
    dial: ClassVar[str] = "strength"

    def __init__(self, name: str, context: GeneratorContext, **options: Any) -> None:
        super().__init__(name, context, **options)
        check_limits(name, self.chosen, {self.dial: (-math.inf, math.inf), "texts": (2, math.inf)})

    def applied(self) -> AbstractContextManager[Any]:
        """Return the hooks of this method; none at strength 0."""
        strength = self.chosen[self.dial]
        return self.changed(strength) if strength != 0 else nullcontext()

    @abstractmethod
    def changed(self, strength: float) -> AbstractContextManager[Any]:
        """Return the hooks of this method at ``strength``."""

    @property
    def max_length(self) -> int:
        """The number of tokens up to which labelled texts are read."""
        return min(LONGEST, self.context.spec.max_length, context_length(self.model, self.tokenizer))

    @property
    def recipe(self) -> dict[str, Any]:
        """What decides the method's part beside model and texts."""
        return {"texts": self.chosen["texts"], "longest": self.max_length}

    def pairs(self) -> tuple[list[str], list[str]]:
        """Return the first texts of source and target in their seeded order: equally many, at most ``texts``."""
        spec, fitted = self.context.spec, self.context.texts.fitted
        n = min(self.chosen["texts"], *map(len, fitted.values()))
        if n < 2:
            raise DataError(f"{self.name} needs two labelled texts of each label; there are {n}. Raise fit_rows.")
        return fitted[spec.source][:n], fitted[spec.target][:n]

    def states(
        self, texts: Sequence[str], sites: Sequence[Site], pool: Pool, workshop: Workshop
    ) -> dict[str, NDArray[np.float32]]:
        """Return the pooled states (n, d) of ``texts`` at each site."""
        how: dict[str, Any] = {"max_length": self.max_length, "progress": workshop.progress, "label": self.name}
        return pooled_states(self.model, self.tokenizer, texts, sites, pool, **how)
