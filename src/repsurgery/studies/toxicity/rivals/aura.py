"""AurA: dampen every neuron of the MLPs by how well its activation tells source texts from target texts."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import nn

from repsurgery import lm
from repsurgery.affine import Diagonal
from repsurgery.lm.sites.families import family_of
from repsurgery.lm.sites.names import Site, is_conv1d
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.studies.toxicity.decoding.activation_rival import ActivationRival
from repsurgery.studies.toxicity.decoding.module_hooks import modules_in_blocks
from repsurgery.studies.toxicity.decoding.parts import Made, Part, Workshop
from repsurgery.studies.toxicity.generators import GENERATORS

__all__ = ["AurA", "auroc", "dampening", "mlp_sites", "token_max"]


@GENERATORS.register("aura")
class AurA(ActivationRival):
    """Scale each output of the MLPs' linear layers by 1 − 2 (AUROC − ½) where its AUROC exceeds ½.

    The AUROC of a neuron compares the largest activation over the tokens of source texts with that of target texts.
    The scaling is a diagonal map, which `lm.steer` applies at every position.

    Options: ``strength`` interpolates between no scaling (0) and AurA (1); ``texts`` is the number of texts per label.

    Guarantees
    ----------
    AUROCs are those of scikit-learn (test_aurocs_are_those_of_scikit_learn).
    """

    options: ClassVar = {"strength": 1.0, "texts": 500}

    def parts(self) -> Mapping[str, Part]:
        """Return the AUROC of every neuron."""
        return {"aurocs": Part("AUROCs of neurons", self._aurocs, self.recipe)}

    def changed(self, strength: float) -> AbstractContextManager[Any]:
        """Return the block in which every neuron is scaled."""
        aurocs = self.part("aurocs").arrays
        scales = {name: dampening(a, strength) for name, a in aurocs.items()}
        return lm.steer(self.model, {name: Diagonal(s, np.zeros_like(s)) for name, s in scales.items()}, strength=1.0)

    def _aurocs(self, workshop: Workshop) -> Made:
        sites = mlp_sites(self.model)
        source, target = self.pairs()
        states = self.states([*source, *target], sites, token_max, workshop)
        return {"texts": len(source)}, {name: auroc(X[: len(source)], X[len(source) :]) for name, X in states.items()}


def mlp_sites(model: nn.Module) -> list[Site]:
    """Return the outputs of every linear layer in the MLPs of ``model``."""
    # in a mixture of experts, and in blocks without an MLP, no layer of the table writes the output
    dense = bool(family_of(unwrapped(model)).mlp_writer)

    def accepts(path: str, module: nn.Module) -> bool:
        return dense and (isinstance(module, nn.Linear) or is_conv1d(module))

    return modules_in_blocks(model, accepts, method="AurA", what="the linear layers of MLPs")


def token_max(state: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the largest value of each coordinate over each text's tokens: a `Pool`."""
    return state.masked_fill(mask[..., None] == 0, -torch.inf).amax(dim=1)


def auroc(source: NDArray[Any], target: NDArray[Any]) -> NDArray[np.float64]:
    """Return, per column, the probability that a row of ``source`` exceeds one of ``target``; ties count half."""
    n, m = len(source), len(target)
    ranks = stats.rankdata(np.concatenate([source, target]), axis=0)[:n].sum(axis=0)
    area: NDArray[np.float64] = (ranks - n * (n + 1) / 2) / (n * m)
    return area


def dampening(area: NDArray[Any], strength: float) -> NDArray[np.float64]:
    """Return 1 − strength · 2 (AUROC − ½) where the AUROC exceeds ½, and 1 elsewhere."""
    scale: NDArray[np.float64] = 1 - strength * 2 * np.maximum(area - 0.5, 0.0)
    return scale
