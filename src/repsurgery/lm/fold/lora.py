"""Write a map as a PEFT LoRA adapter: ΔW = (A − I) W, whose rank is at most that of A − I."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors.torch import save_file
from torch import nn

from repsurgery.affine import AffineMap
from repsurgery.checkpoint import added_files
from repsurgery.errors import FoldError, MissingExtraError, ParameterError
from repsurgery.lm.fold.bias_placement import bias_switch, fixed_direction, preimage
from repsurgery.lm.fold.fold_points import FoldPoint, require_plain, single_map
from repsurgery.lm.fold.lora_factors import check_rank, constant_of, factors, lora_point
from repsurgery.lm.fold.weights import bias_of, is_tied, matrix_of
from repsurgery.lm.load.folder import make_ordinary
from repsurgery.lm.load.origin import model_name
from repsurgery.lm.sites.names import is_conv1d
from repsurgery.lm.steer.placing import weight_placement

__all__ = ["LoraExport", "peft_package", "place_of_constant", "to_lora"]

Constant = Literal["carry", "merge", "omit"]
Place = Literal["none", "bias", "norm", "switch", "adapter", "omitted"]


@dataclass(frozen=True, slots=True)
class LoraExport:
    """A LoRA adapter on disk, and how much of the map it represents.

    Attributes
    ----------
    folder : Path
    site : str
    target : str
        The path of the layer that the adapter changes.
    rank : int
        Rank of the adapter; at least 1, as PEFT requires.
    error : float
        ‖ΔW − BA‖ / ‖ΔW‖ in the Frobenius norm: 0 where the adapter represents all of A.
    constant_norm : float
        ‖c‖ of the constant to be added to the layer's output beyond its own bias.
    place : {"none", "bias", "norm", "switch", "adapter", "omitted"}
        Where the constant is. ``none``: it is zero. ``norm``: in the bias of the LayerNorm before the layer, which the
        adapter replaces (PEFT's ``modules_to_save``). ``bias``, ``switch`` and ``adapter``: in the bias of the second
        factor (PEFT's ``lora_bias``), which merges into the layer's own bias, into a bias that an option of the
        configuration creates, or nowhere. ``omitted``: it is not zero and not in the adapter.
    bias_switch : str or None
        That option: load the base with ``from_pretrained(name, **{bias_switch: True})``, and the adapter merges.
    tied : bool
        Whether the layer shares its weight with the embeddings, so that it must be cloned before merging.
    """

    folder: Path
    site: str
    target: str
    rank: int
    error: float
    constant_norm: float
    place: Place
    bias_switch: str | None
    tied: bool

    @property
    def constant(self) -> Literal["none", "carried", "omitted"]:
        """Whether there is a constant, and whether the adapter carries it."""
        return self.place if self.place in ("none", "omitted") else "carried"

    @property
    def mergeable(self) -> bool:
        """Whether ``merge_and_unload`` into the base, loaded as usual, gives the model with the adapter."""
        return self.place not in ("switch", "adapter") and not self.tied

    @property
    def exact(self) -> bool:
        """Whether model and adapter compute what the steered model computes, up to rounding."""
        return self.error == 0 and self.place != "omitted"


def to_lora(
    model: nn.Module,
    steering: Any,
    site: str | None,
    folder: str | os.PathLike[str],
    *,
    strength: float | None = None,
    scale: float = 1.0,
    rank: int | None = None,
    constant: Constant = "carry",
) -> LoraExport:
    """Write a PEFT adapter with which ``model`` computes what it does under ``steer(model, {site: steering})``.

    Parameters
    ----------
    model : nn.Module
        It is not changed.
    steering : AffineMap, or a SteeringFunction or fitted estimator that steers every vector by one map
        x ↦ Ax + b. A − I must have low rank (LEACE, MidSteer, translations), unless ``rank`` is given.
        Or placements, as for `fold`.
    site : str or None
        As for `fold`, except sites where only a LayerNorm can hold a map.
    folder : path
        Created if missing; load it with ``peft.PeftModel.from_pretrained(model, folder)``.
    strength : float or None
        0 leaves the states unchanged, 1 applies the map. None uses the strength of the steering's origin, else 1.
    scale : float
        Multiplies that strength; see `steer`.
    rank : int or None
        Approximate ΔW by this rank, optimally in the Frobenius norm; ``error`` of the result states the loss.
    constant : {"carry", "merge", "omit"}
        ``carry`` puts the constant into the adapter as PEFT's ``lora_bias``, which some servers do not read. ``merge``
        does so too, except where the layer has no bias and reads a LayerNorm: the norm then takes the constant, at the
        cost of at most one more rank, and the adapter merges. ``omit`` leaves it out, so that the adapter is exact only
        where the constant is zero.

    Returns
    -------
    LoraExport

    Guarantees
    ----------
    Model plus adapter equals the hook (test_the_adapter_equals_the_hook).
    Merged, it equals the hook wherever the result says that it merges (test_the_merged_adapter_equals_the_hook).
    A failure leaves no file behind (test_a_failed_export_leaves_nothing_behind).
    """
    peft = peft_package()
    require_plain(model)
    inner: Any = model
    if constant not in get_args(Constant):
        raise ParameterError(f"constant is {constant!r}; it must be 'carry', 'merge' or 'omit'.")
    check_rank(rank)
    at = weight_placement(model, steering, site, strength, scale, caller="to_lora")
    m, site = single_map(at.function, at.strength, caller="to_lora"), at.site
    point = lora_point(inner, m, site)
    layer = inner.get_submodule(point.path)
    B, A, error = factors(layer, point, m, rank)
    shift = constant_of(layer, point, m)
    place = place_of_constant(inner, point, shift, constant)
    own: dict[str, torch.Tensor] = {}  # of the adapter's second factor
    norms: dict[str, torch.Tensor] = {}
    if place == "norm":
        B, A, norms = _through_norm(inner, point, m, B, A, shift, exact=error == 0)
    elif place in ("bias", "switch", "adapter"):
        own = {"lora_B.bias": shift}
    if B.shape[1] == 0:  # PEFT needs a rank of at least 1
        B, A = B.new_zeros(len(B), 1), A.new_zeros(1, A.shape[1])
    config = peft.LoraConfig(
        r=len(A),
        lora_alpha=len(A),
        target_modules=[point.path],
        modules_to_save=[point.norm] if norms else None,
        lora_bias=bool(own),
        fan_in_fan_out=is_conv1d(layer),
        task_type="CAUSAL_LM" if inner.can_generate() else None,
        base_model_name_or_path=model_name(inner),  # without the path of a local folder
        inference_mode=True,
    )
    dtype = torch.float64 if layer.weight.dtype == torch.float64 else torch.float32
    named = {f"{point.path}.{name}": t for name, t in {"lora_A.weight": A, "lora_B.weight": B, **own}.items()} | norms
    tensors = {f"base_model.model.{name}": _rounded(t, dtype) for name, t in named.items()}
    target = Path(folder)
    with added_files(target) as draft:
        save_file(tensors, draft / "adapter_model.safetensors", metadata={"format": "pt"})
        make_ordinary(draft)
        config.save_pretrained(str(draft))
    switch = bias_switch(inner, point.path) if place == "switch" else None
    tied = is_tied(inner, f"{point.path}.weight")
    return LoraExport(target, site, point.path, len(A), error, float(shift.norm()), place, switch, tied)


def place_of_constant(model: nn.Module, point: FoldPoint, shift: torch.Tensor, constant: Constant) -> Place:
    """Return where an adapter can keep the constant ``shift`` (out,) of the layer at ``point``."""
    if not shift.any():
        return "none"
    if constant == "omit":
        return "omitted"
    if bias_of(model.get_submodule(point.path)) is not None:
        return "bias"
    if constant == "merge" and point.norm is not None:
        return "norm"
    return "adapter" if bias_switch(model, point.path) is None else "switch"


def _through_norm(
    model: nn.Module,
    point: FoldPoint,
    m: AffineMap,
    B: torch.Tensor,
    A: torch.Tensor,
    shift: torch.Tensor,
    *,
    exact: bool,
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Return B, A and the parameters of the norm before the layer, with which the constant needs no bias."""
    norm, W = model.get_submodule(str(point.norm)), matrix_of(model.get_submodule(point.path))
    before = preimage(m) if exact and point.kind == "reader" else None
    if before is None:
        fixed = fixed_direction(norm)
        q = fixed.column(shift, W @ fixed.v + B @ (A @ fixed.v))
        B, A, bias = torch.cat([B, q[:, None]], dim=1), torch.cat([A, fixed.v[None]]), fixed.bias
    else:
        bias = norm.get_parameter("bias").detach().cpu().double() + before
    weight = norm.get_parameter("weight").detach().cpu().double()
    return B, A, {f"{point.norm}.weight": weight, f"{point.norm}.bias": bias}


def _rounded(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    rounded = value.to(dtype).contiguous()
    if not torch.isfinite(rounded).all():
        raise FoldError(
            f"The adapter reaches {float(value.abs().max()):.3g}, beyond {dtype}. Export at a lower strength."
        )
    return rounded


def peft_package() -> Any:
    """Return the package peft, or raise an error that names its extra."""
    try:
        import peft
    except ImportError as error:
        raise MissingExtraError(f"to_lora needs PEFT ({error}): pip install 'repsurgery[export]'") from error
    return peft
