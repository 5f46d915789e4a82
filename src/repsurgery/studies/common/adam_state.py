"""The parameters of a training and the state of Adam, as arrays, so that an interrupted training can continue."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

__all__ = ["adam_arrays", "restore_adam"]

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""The state of Adam for each parameter."""


def adam_arrays(parameters: Mapping[str, nn.Parameter], optimiser: torch.optim.Optimizer) -> dict[str, NDArray[Any]]:
    """Return the values of ``parameters`` and what the optimiser knows of each."""
    arrays = {f"value|{name}": p.numpy(force=True) for name, p in parameters.items()}
    for name, p in parameters.items():
        arrays |= {f"{key}|{name}": optimiser.state[p][key].numpy(force=True) for key in _MOMENTS}
    return arrays


def restore_adam(
    parameters: Mapping[str, nn.Parameter], optimiser: torch.optim.Optimizer, arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Set parameters and optimiser to what `adam_arrays` returned."""
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(tensors[f"value|{name}"])
            optimiser.state[p] = {key: tensors[f"{key}|{name}"].to(p.device) for key in _MOMENTS}
