"""Low-rank adapters in training: the frozen layers of an encoder with a trainable difference each, and a head."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from repsurgery.scorers.adapted import make_head

__all__ = ["LowRank", "adapt", "stored_arrays"]


class LowRank(nn.Module):
    """A frozen linear layer plus U D of rank r: x ↦ W x + b + U (D x), with U = 0 at first (Hu et al., 2021)."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / math.sqrt(layer.in_features))
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs (..., out) of inputs (..., in)."""
        y: torch.Tensor = self.layer(x) + (x @ self.down.T) @ self.up.T
        return y


def adapt(network: Any, *, rank: int, hidden: int, outputs: int) -> nn.Module:
    """Freeze ``network``, adapt every linear layer of it in place, and return a new head for its states."""
    network.requires_grad_(requires_grad=False)
    layers = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    for name, layer in layers:
        above, _, own = name.rpartition(".")
        setattr(network.get_submodule(above), own, LowRank(layer, rank))
    head: nn.Module = make_head(network.config.hidden_size, hidden, outputs)
    return head


def stored_arrays(network: nn.Module, head: nn.Module) -> dict[str, NDArray[Any]]:
    """Return adapters and head in float16, under the names that `scorers.adapted.adapted` expects.

    Only the first output of the head is stored.
    """
    tensors: dict[str, torch.Tensor] = {
        name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad
    }
    for name, parameter in head.named_parameters():
        tensors[f"head.{name}"] = parameter[:1] if name.startswith("2.") else parameter
    return {name: tensor.numpy(force=True).astype(np.float16) for name, tensor in tensors.items()}
