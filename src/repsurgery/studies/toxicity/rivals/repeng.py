"""Steering vectors as repeng fits them: the first principal component of differences between paired states."""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from repsurgery import lm
from repsurgery.affine import Translation
from repsurgery.studies.toxicity.decoding.activation_rival import ActivationRival
from repsurgery.studies.toxicity.decoding.limits import check_limits
from repsurgery.studies.toxicity.decoding.module_hooks import blocks_of
from repsurgery.studies.toxicity.decoding.parts import Made, Part, Workshop
from repsurgery.studies.toxicity.generators import GENERATORS, GeneratorContext

__all__ = ["Repeng", "control_vector", "last_token", "steered_blocks"]


@GENERATORS.register("repeng")
class Repeng(ActivationRival):
    """Add ``strength`` times a vector of length 1 to the outputs of the middle-to-late blocks, at every position.

    repeng pairs texts, takes the states of their last tokens after each block, and computes the first principal
    component of the differences target − source (method ``pca_diff``; PCA centres them). The vector points to the
    side on which most targets exceed their sources. It has length 1 and is multiplied by the coefficient alone,
    whatever the length of the model's states: ``strength=1`` is repeng's default coefficient. In SmolLM2-135M the
    states after those blocks have lengths of 150 to 540, so that it takes a larger one to change much. Here the pairs
    are labelled texts in their seeded order, whereas repeng's own examples pair texts that differ in one word. Centring
    removes what all pairs have in common, so that of unrelated texts the vector shows mostly what varies most.

    Options: ``strength``; ``texts``, the number of pairs; ``layers``, the number of blocks that are changed, or 0 for
    repeng's range, which its manual gives as blocks −5 to −17 of 32.

    Guarantees
    ----------
    The vector is the component of scikit-learn's PCA, up to its sign (test_the_vector_is_the_component_of_pca).
    """

    options: ClassVar = {"strength": 1.0, "texts": 500, "layers": 0}

    def __init__(self, name: str, context: GeneratorContext, **options: Any) -> None:
        super().__init__(name, context, **options)
        if self.chosen["layers"]:  # 0 needs no knowledge of the model
            check_limits(name, self.chosen, {"layers": (0, len(blocks_of(self.model)))})

    def parts(self) -> Mapping[str, Part]:
        """Return the vector of every block."""
        return {"vectors": Part("control vectors", self._vectors, self.recipe)}

    def changed(self, strength: float) -> AbstractContextManager[Any]:
        """Return the block in which the vectors are added."""
        vectors = self.part("vectors").arrays
        chosen = steered_blocks(len(vectors), self.chosen["layers"])
        shifts = {f"layers.{i}": Translation(strength * vectors[f"layers.{i}"]) for i in chosen}
        return lm.steer(self.model, shifts, strength=1.0)

    def _vectors(self, workshop: Workshop) -> Made:
        sites = blocks_of(self.model)
        source, target = self.pairs()
        states = self.states([*source, *target], sites, last_token, workshop)
        n = len(source)
        return {"texts": n}, {name: control_vector(X[:n], X[n:]) for name, X in states.items()}


def last_token(state: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the state of each text's last token: a `Pool`."""
    return state[torch.arange(len(state), device=state.device), mask.sum(dim=1) - 1]


def control_vector(source: NDArray[Any], target: NDArray[Any]) -> NDArray[np.float64]:
    """Return the first principal component (d,) of target − source, with the sign by which most targets are larger."""
    differences = np.subtract(target, source, dtype=np.float64)
    vector: NDArray[np.float64] = np.linalg.svd(differences - differences.mean(axis=0), full_matrices=False)[2][0]
    larger = np.sign(differences @ vector).sum()
    return -vector if larger < 0 else vector


def steered_blocks(blocks: int, layers: int = 0) -> range:
    """Return the blocks that are changed: ``layers`` of them, or repeng's 13 of 32, before the last eighth."""
    count = layers or math.ceil(blocks * 13 / 32)
    end = min(max(blocks - round(blocks / 8), count), blocks)
    return range(max(end - count, 0), end)
