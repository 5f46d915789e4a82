"""A home for the constant of a folded map: a bias, a norm's bias, or a flag of the configuration that makes one.

A bias that the architecture does not have can be used in memory, but transformers drops it on reload without an error.
"""

import copy
from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig

from repsurgery.affine import AffineMap, Translation
from repsurgery.errors import SingularMapError
from repsurgery.lm.fold.fold_points import Seam, model_type, seams
from repsurgery.lm.fold.weights import matrix_of, store
from repsurgery.lm.sites.families import ARCHITECTURES
from repsurgery.lm.steer.torch_maps import to_tensor

__all__ = ["make_room_by_flag", "portable_sites", "put_into_norm"]

LARGEST_CONDITION = 100.0
"""Condition of W above which W⁻¹b is not taken: its rounding would show in float32 logits."""

BIAS_FLAGS = ("attention_bias", "mlp_bias")
BIAS_FLAGS_OF = {"falcon": ("bias",), "opt": ("enable_bias",)}
"""Names, in a configuration, of switches that do nothing but give linear layers a bias."""


def put_into_norm(model: nn.Module, seam: Seam, m: AffineMap, constant: torch.Tensor) -> None:
    """Let the LayerNorm below a folded linear layer carry ``constant`` (out,), so that the layer needs no bias.

    Where the layer reads W x and W is well conditioned, W⁻¹b is added to the norm's bias. Otherwise the constant goes
    along the one direction v that γ∘z, with z centred, never has: v = 1/γ. The norm's bias is moved along v, so that
    vᵀn is the same number s for every token, and the layer gets q vᵀ with q s = constant.
    """
    norm, linear = model.get_submodule(str(seam.norm)), model.get_submodule(seam.path)
    beta = norm.get_parameter("bias").detach().cpu().double()
    shift = _preimage(m) if seam.kind == "reader" else None
    if shift is not None:
        store(norm, "bias", beta + shift, what=f"The bias of {seam.norm}")
        return
    gamma = norm.get_parameter("weight").detach().cpu().double()
    zero = gamma.abs() <= torch.finfo(torch.float32).tiny
    v = zero.double() if zero.any() else 1 / gamma
    v = v / v.norm()
    s = float(gamma.norm()) or 1.0
    t = s - v @ beta
    W = matrix_of(linear)
    q = (constant - t * (W @ v)) / s
    store(linear, "weight", W + torch.outer(q, v), what=f"The weight of {seam.path}")
    store(norm, "bias", beta + t * v, what=f"The bias of {seam.norm}")


def _preimage(m: AffineMap) -> torch.Tensor | None:
    """Return W⁻¹b, or None where W has no inverse worth taking."""
    if isinstance(m, Translation):
        return to_tensor(m.shift)
    try:
        inverse = m.inverse()
    except SingularMapError:
        return None
    if m.gain() * inverse.gain() > LARGEST_CONDITION:
        return None
    return to_tensor(inverse.linear(m.bias[None])[0])


def make_room_by_flag(model: nn.Module, path: str) -> bool:
    """Switch on the flag that gives the layer at ``path`` a bias, with zeros for all layers that it gives one."""
    for flag in _flags(model):
        config: Any = copy.deepcopy(model.config)
        setattr(config.get_text_config(), flag, True)
        biases = _new_biases(model, config)
        if f"{path}.bias" not in biases:
            continue
        setattr(model.config.get_text_config(), flag, True)  # type: ignore[operator, union-attr]
        for owner, size in biases.items():
            module = model.get_submodule(owner.removesuffix(".bias"))
            store(module, "bias", torch.zeros(size), what=owner)
        return True
    return False


def portable_sites(model: nn.Module) -> list[str]:
    """Return the foldable sites of ``model`` where a map with a constant survives saving and reloading."""
    if model_type(model) not in ARCHITECTURES:
        return []
    config: Any = copy.deepcopy(model.config)
    for flag in _flags(model):
        setattr(config.get_text_config(), flag, True)
    architecture = _architecture(model, config)
    possible = [seam for seam in seams(model) if seam.kind in ("writer", "reader")]
    return [seam.site for seam in possible if seam.norm is not None or f"{seam.path}.bias" in architecture]


def _flags(model: nn.Module) -> list[str]:
    if not isinstance(getattr(model, "config", None), PretrainedConfig):
        return []
    config: Any = model.config
    text = config.get_text_config()
    names = (*BIAS_FLAGS, *BIAS_FLAGS_OF.get(text.model_type, ()))
    return [name for name in names if getattr(text, name, None) is False]


def _new_biases(model: nn.Module, config: Any) -> dict[str, torch.Size]:
    """Return name and shape of the biases that ``config`` would add; none if it would change anything else."""
    old = model.state_dict().keys()
    new = {name: shape for name, shape in _architecture(model, config).items() if name not in old}
    plain = all(name.endswith(".bias") and len(shape) == 1 for name, shape in new.items())
    return new if plain else {}


def _architecture(model: nn.Module, config: Any) -> dict[str, torch.Size]:
    """Return name and shape of every parameter that a model of this class would have under ``config``."""
    # meta tensors take no memory, but initialisation may still draw random numbers
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        would_be: nn.Module = type(model)(config)
    return {name: value.shape for name, value in would_be.state_dict().items()}
