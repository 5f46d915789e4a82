"""Weights of linear layers as matrices (out, in), and their products with an affine map, in float64."""

import numpy as np
import torch
from torch import nn

from repsurgery.affine import AffineMap, Diagonal, Identity, LowRank, Translation
from repsurgery.arrays import Vector
from repsurgery.errors import FoldError
from repsurgery.lm.sites.names import is_conv1d
from repsurgery.lm.steer.torch_maps import to_tensor

__all__ = [
    "bias_of",
    "diagonal_of",
    "is_linear",
    "is_quantised",
    "is_tied",
    "map_after",
    "map_before",
    "matrix_of",
    "sizes",
    "store",
]

PLAIN_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

ROWS_AT_ONCE = 16384
"""Rows of an output layer that are converted to float64 at a time."""


def is_linear(module: nn.Module | None) -> bool:
    """Return whether ``module`` multiplies by one floating-point matrix that is neither quantised nor wrapped."""
    weight = getattr(module, "weight", None)
    if module is None or type(weight) is not nn.Parameter or weight.ndim != 2 or is_quantised(module):
        return False
    plain = isinstance(module, nn.Linear) and weight.shape == (module.out_features, module.in_features)
    return (plain or is_conv1d(module)) and weight.device.type != "meta"


def is_quantised(module: nn.Module | None) -> bool:
    """Return whether a linear layer computes with packed, integer or 8-bit weights instead of a plain matrix.

    Covers bitsandbytes, GPTQ, AWQ and FP8 layers, tensor subclasses (torchao, quanto), and torch's own quantisation,
    whose layers give their weight by a method.

    Guarantees
    ----------
    Folding into such a layer is refused (test_a_quantised_layer_is_steered_by_hooks_and_never_folded).
    """
    if module is None or not (hasattr(module, "in_features") or hasattr(module, "infeatures") or is_conv1d(module)):
        return False
    weight = getattr(module, "weight", None)
    subclass = isinstance(weight, nn.Parameter) and type(weight) is not nn.Parameter
    if callable(weight) or (subclass and not hasattr(weight, "placements")):  # sharded weights have placements
        return True
    held = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    return any(tensor.dtype not in PLAIN_DTYPES for tensor in held)


def is_tied(model: nn.Module, name: str) -> bool:
    """Return whether the parameter ``name`` is shared with another one, such as the embeddings."""
    tied: dict[str, str] = getattr(model, "all_tied_weights_keys", None) or {}
    return any(name in pair for pair in tied.items())


def sizes(linear: nn.Module) -> tuple[int, int]:
    """Return (out, in)."""
    out, inner = linear.get_parameter("weight").shape
    return (inner, out) if is_conv1d(linear) else (out, inner)


def matrix_of(linear: nn.Module) -> torch.Tensor:
    """Return the weight (out, in) as float64 on the host."""
    weight = linear.get_parameter("weight").detach().cpu().double()
    return weight.T if is_conv1d(linear) else weight


def bias_of(linear: nn.Module) -> torch.Tensor | None:
    """Return the bias (out,) as float64 on the host, or None where the layer has none."""
    bias = getattr(linear, "bias", None)
    return None if bias is None else bias.detach().cpu().double()


def store(module: nn.Module, name: str, value: torch.Tensor, *, what: str) -> None:
    """Set the parameter ``name`` of ``module`` to ``value``, in the dtype and on the device of its weight."""
    old = module.get_parameter("weight")
    stored = value.T if name == "weight" and is_conv1d(module) else value
    parameter = stored.to(device=old.device, dtype=old.dtype).contiguous()
    if not torch.isfinite(parameter).all():
        raise FoldError(
            f"{what} reaches {float(value.abs().max()):.3g}, beyond {old.dtype}. "
            "Fold at a lower strength, or load the model in a wider dtype."
        )
    module.register_parameter(name, nn.Parameter(parameter, requires_grad=old.requires_grad))


def map_after(m: AffineMap, W: torch.Tensor) -> torch.Tensor:
    """Return A W for ``W`` (d, in): the layer first, then the map."""
    match m:
        case Identity() | Translation():
            return W.clone()
        case Diagonal():
            return to_tensor(m.scale)[:, None] * W
        case LowRank():
            return float(m.scale) * W + to_tensor(m.left) @ (to_tensor(m.right) @ W)
    return to_tensor(m.weight) @ W


def map_before(m: AffineMap, linear: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Return W A (out, d), in the weight's own dtype, and W b (out,), for a layer that reads the mapped state."""
    weight = linear.get_parameter("weight").detach()
    weight = weight.T if is_conv1d(linear) else weight
    arrays, shift = [to_tensor(a) for a in _factors(m)], to_tensor(m.bias)
    blocks = []
    for rows in torch.split(weight, ROWS_AT_ONCE):
        W = rows.cpu().double()
        blocks.append((_before(m, W, arrays).to(weight.dtype), W @ shift))
    return torch.cat([product for product, _ in blocks]), torch.cat([constant for _, constant in blocks])


def _factors(m: AffineMap) -> list[object]:
    match m:
        case Identity() | Translation():
            return []
        case Diagonal():
            return [m.scale]
        case LowRank():
            return [m.scale, m.left, m.right]
    return [m.weight]


def _before(m: AffineMap, W: torch.Tensor, arrays: list[torch.Tensor]) -> torch.Tensor:
    match arrays:
        case []:
            return W
        case [scale, left, right]:
            return scale * W + (W @ left) @ right
        case [only]:
            return W * only if isinstance(m, Diagonal) else W @ only
    raise AssertionError(arrays)


def diagonal_of(m: AffineMap) -> Vector | None:
    """Return the factor (d,) of each coordinate; None for a map that mixes coordinates."""
    match m:
        case Identity() | Translation():
            return np.ones(m.dim)
        case Diagonal():
            return m.scale
        case LowRank() if m.rank == 0:
            return np.full(m.dim, float(m.scale))
    return None
