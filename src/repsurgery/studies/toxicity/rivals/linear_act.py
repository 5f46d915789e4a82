"""Linear-AcT: move every neuron by its own linear optimal transport from source to target, layer by layer."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from repsurgery.lm.batching.batches import entry_device, evaluating
from repsurgery.lm.batching.tokens import encode, pad, pad_id
from repsurgery.lm.read.states import require_visited, runner
from repsurgery.lm.sites.names import Site
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.lm.steer.hooks import Visit
from repsurgery.lm.steer.torch_maps import to_rows
from repsurgery.studies.toxicity.decoding.activation_rival import ActivationRival
from repsurgery.studies.toxicity.decoding.module_hooks import hooked, modules_in_blocks, token_mean
from repsurgery.studies.toxicity.decoding.parts import Made, Part, Workshop
from repsurgery.studies.toxicity.generators import GENERATORS

__all__ = ["LinearAcT", "fit_in_order", "norm_sites", "transport", "transported"]


@GENERATORS.register("linear-act")
class LinearAcT(ActivationRival):
    """Map every output of the blocks' norms by x ↦ ω x + β where x lies inside the range of the source.

    ω and β are fitted per coordinate: the texts' means over tokens are sorted in both labels, and the sorted values of
    the target are regressed on those of the source. Each norm is fitted on source states that the norms before it have
    already moved, and on target states that nothing has moved. The norms are those of the blocks; where a family has
    norms after attention and MLP as well (Gemma 2 and 3), these alone. The range makes the map nonlinear, so that it
    is a hook of its own and not an affine map.

    Options: ``strength`` interpolates between x (0) and its image (1); ``texts`` is the number of texts per label. All
    texts are read in one pass, in which every norm is fitted as the states reach it, so that they must fit in memory
    together: 64 texts per label take about 1 GB with SmolLM2.

    Guarantees
    ----------
    Slopes and intercepts are least squares of sorted values (test_the_map_is_least_squares_of_sorted_values).
    Each norm is fitted on transported states (test_each_norm_is_fitted_after_those_before_it).
    """

    options: ClassVar = {"strength": 1.0, "texts": 64}

    def parts(self) -> Mapping[str, Part]:
        """Return the map of every norm."""
        return {"maps": Part("transport maps", self._maps, self.recipe)}

    def changed(self, strength: float) -> AbstractContextManager[Any]:
        """Return the block in which every norm's output is transported."""
        maps, sites = self.part("maps").arrays, norm_sites(self.model)
        return hooked({site: partial(transported, maps=torch.tensor(maps[site.name]), t=strength) for site in sites})

    def _maps(self, workshop: Workshop) -> Made:
        source, target = self.pairs()
        sites = norm_sites(self.model)
        maps = fit_in_order(self.model, self.tokenizer, source, target, sites, max_length=self.max_length)
        return {"texts": len(source)}, maps


def norm_sites(model: nn.Module) -> list[Site]:
    """Return the outputs of the norms of every block, in the order in which the blocks follow each other."""
    inner = unwrapped(model)
    # Gemma 2 and 3 name four norms: before and after the attention, before and after the MLP
    four = any(path.endswith("pre_feedforward_layernorm") for path, _ in inner.named_modules())

    def accepts(path: str, module: nn.Module) -> bool:
        return type(module).__name__.lower().endswith("norm") and (not four or path.startswith("post_"))

    return modules_in_blocks(model, accepts, method="Linear-AcT", what="norms in blocks")


def transport(source: NDArray[Any], target: NDArray[Any]) -> NDArray[np.float32]:
    """Return slope, intercept, lowest and highest value of the source, (4, d), of each column of n rows."""
    x, y = np.sort(source.astype(np.float64), axis=0), np.sort(target.astype(np.float64), axis=0)
    dx, mean = x - x.mean(axis=0), y.mean(axis=0)
    variance = np.square(dx).sum(axis=0)
    # a column that is constant in the source is only shifted
    slope = np.where(variance > 0, (dx * (y - mean)).sum(axis=0) / np.where(variance > 0, variance, 1.0), 1.0)
    return np.stack([slope, mean - slope * x.mean(axis=0), x[0], x[-1]]).astype(np.float32)


def transported(state: torch.Tensor, maps: torch.Tensor, t: float) -> torch.Tensor:
    """Return the state with every value strictly inside its source range moved by the share ``t`` of the way."""
    slope, intercept, low, high = maps.to(state.device)
    x = state.float()
    moved = torch.where((low < x) & (x < high), t * (slope * x + intercept) + (1 - t) * x, x)
    return moved.to(state.dtype)


def fit_in_order(
    model: nn.Module,
    tokenizer: Any,
    source: Sequence[str],
    target: Sequence[str],
    sites: Sequence[Site],
    *,
    max_length: int,
) -> dict[str, NDArray[np.float32]]:
    """Return the map of each site, by name, where the source texts have passed through the maps of earlier sites."""
    inner, n = unwrapped(model), len(source)
    tokens = encode(inner, tokenizer, [*source, *target], max_length=max_length, caller="Linear-AcT")
    ids, mask = pad(tokens, token=pad_id(inner, tokenizer), side="right")
    device = entry_device(inner)
    maps: dict[str, NDArray[np.float32]] = {}

    def visitor(name: str) -> Visit:
        def visit(state: torch.Tensor) -> torch.Tensor:
            texts = state.reshape(*mask.shape, -1)  # OPT's norms see the tokens of all texts in one dimension
            rows = to_rows(token_mean(texts, mask.to(state.device)))
            maps[name] = transport(rows[:n], rows[n:])
            moved = transported(texts[:n], torch.tensor(maps[name]), 1.0)
            return torch.cat([moved, texts[n:]]).reshape(state.shape)

        return visit

    with evaluating(inner), hooked({site: visitor(site.name) for site in sites}):
        runner(inner, inner, sites)(input_ids=ids.to(device), attention_mask=mask.to(device))
    require_visited(sites, maps)
    return maps
