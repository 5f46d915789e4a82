"""Place the constant of a folded map where saving keeps it: in a norm's bias, or in biases that a switch creates.

A bias that the architecture does not have works in memory, but transformers drops it on reload without an error.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig

from repsurgery.affine import AffineMap, Translation
from repsurgery.errors import SingularMapError
from repsurgery.lm.fold.fold_points import FoldPoint, fold_points
from repsurgery.lm.fold.weights import matrix_of, store
from repsurgery.lm.sites.families import family_named, family_of
from repsurgery.lm.steer.torch_maps import to_tensor

__all__ = [
    "FixedDirection",
    "add_bias_by_switch",
    "bias_switch",
    "fixed_direction",
    "place_in_norm",
    "portable_sites",
    "preimage",
]

LARGEST_CONDITION = 100.0
"""Largest condition number of W for which W⁻¹b is used; beyond it, rounding would be visible in float32 logits."""


@dataclass(frozen=True, slots=True, eq=False)
class FixedDirection:
    """A direction in which the output n of a LayerNorm is the same for every token, once its bias has been moved.

    v = 1/γ is orthogonal to every γ∘z with z centred, so vᵀn depends on the bias alone.

    Attributes
    ----------
    v : (d,)
        Of length 1.
    bias : (d,)
        The new bias of the norm, moved along v so that vᵀn = s.
    moved : float
        By how much: n becomes n + moved · v.
    s : float
    """

    v: torch.Tensor
    bias: torch.Tensor
    moved: float
    s: float

    def column(self, constant: torch.Tensor, along: torch.Tensor) -> torch.Tensor:
        """Return q (out,): a weight W + q vᵀ adds ``constant`` (out,), where ``along`` is W v (out,)."""
        return (constant - self.moved * along) / self.s


def fixed_direction(norm: nn.Module) -> FixedDirection:
    """Return the fixed direction of a LayerNorm."""
    beta = norm.get_parameter("bias").detach().cpu().double()
    gamma = norm.get_parameter("weight").detach().cpu().double()
    zero = gamma.abs() <= torch.finfo(torch.float32).tiny
    v = zero.double() if zero.any() else 1 / gamma
    v = v / v.norm()
    s = float(gamma.norm()) or 1.0
    moved = s - float(v @ beta)
    return FixedDirection(v, beta + moved * v, moved, s)


def place_in_norm(model: nn.Module, point: FoldPoint, m: AffineMap, constant: torch.Tensor) -> None:
    """Add ``constant`` (out,) through the LayerNorm before a folded linear layer, which then needs no bias.

    Where the layer reads W x and W is well conditioned, W⁻¹b is added to the norm's bias. Otherwise the constant enters
    the layer's weight along the norm's fixed direction.
    """
    norm, linear = model.get_submodule(str(point.norm)), model.get_submodule(point.path)
    shift = preimage(m) if point.kind == "reader" else None
    if shift is not None:
        beta = norm.get_parameter("bias").detach().cpu().double()
        store(norm, "bias", beta + shift, what=f"The bias of {point.norm}")
        return
    fixed = fixed_direction(norm)
    W = matrix_of(linear)
    q = fixed.column(constant, W @ fixed.v)
    store(linear, "weight", W + torch.outer(q, fixed.v), what=f"The weight of {point.path}")
    store(norm, "bias", fixed.bias, what=f"The bias of {point.norm}")


def preimage(m: AffineMap) -> torch.Tensor | None:
    """Return W⁻¹b, or None where W is singular or badly conditioned."""
    if isinstance(m, Translation):
        return to_tensor(m.shift)
    try:
        inverse = m.inverse()
    except SingularMapError:
        return None
    if m.gain() * inverse.gain() > LARGEST_CONDITION:
        return None
    return to_tensor(inverse.linear(m.bias[None])[0])


def bias_switch(model: nn.Module, path: str) -> str | None:
    """Return the option of the configuration that gives the layer at ``path`` a bias; None where there is none."""
    return next((switch for switch in _switches(model) if f"{path}.bias" in _new_biases(model, switch)), None)


def add_bias_by_switch(model: nn.Module, path: str) -> bool:
    """Turn on the switch that gives the layer at ``path`` a bias, with zeros in every layer that gets one.

    Return whether the configuration has such a switch.
    """
    switch = bias_switch(model, path)
    if switch is None:
        return False
    for owner, size in _new_biases(model, switch).items():
        module = model.get_submodule(owner.removesuffix(".bias"))
        store(module, "bias", torch.zeros(size), what=owner)
    setattr(model.config.get_text_config(), switch, True)  # type: ignore[operator, union-attr]
    return True


def portable_sites(model: nn.Module) -> list[str]:
    """Return the foldable sites of ``model`` where a map with a constant survives saving and reloading."""
    family = family_of(model)
    if not family.stems or family.encoder_decoder:
        return []
    config: Any = copy.deepcopy(model.config)
    for switch in _switches(model):
        setattr(config.get_text_config(), switch, True)
    parameters = _parameters(model, config)
    candidates = [point for point in fold_points(model) if point.kind in ("writer", "reader")]
    return [point.site for point in candidates if point.norm is not None or f"{point.path}.bias" in parameters]


def _switches(model: nn.Module) -> list[str]:
    if not isinstance(getattr(model, "config", None), PretrainedConfig):
        return []
    config: Any = model.config
    text = config.get_text_config()
    switches = family_named(text.model_type).bias_switches
    return [name for name in switches if getattr(text, name, None) is False]


def _new_biases(model: nn.Module, switch: str) -> dict[str, torch.Size]:
    """Return name and shape of the biases that ``switch`` would add; none if it would change anything else."""
    config: Any = copy.deepcopy(model.config)
    setattr(config.get_text_config(), switch, True)
    old = model.state_dict().keys()
    new = {name: shape for name, shape in _parameters(model, config).items() if name not in old}
    only_biases = all(name.endswith(".bias") and len(shape) == 1 for name, shape in new.items())
    return new if only_biases else {}


def _parameters(model: nn.Module, config: Any) -> dict[str, torch.Size]:
    """Return name and shape of every parameter of a model of this class with ``config``."""
    # meta tensors take no memory, but initialisation may still draw random numbers
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        other: nn.Module = type(model)(config)
    return {name: value.shape for name, value in other.state_dict().items()}
