"""Write a map as a PEFT LoRA adapter: ΔW = (A − I) W, whose rank is at most that of A − I."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import nn

from repsurgery.affine import AffineMap, Identity, LowRank, Translation
from repsurgery.errors import FoldError, MissingExtraError, ParameterError
from repsurgery.lm.fold.fold_points import FoldPoint, checked_fold_point, require_plain, single_map
from repsurgery.lm.fold.weights import bias_of, matrix_of
from repsurgery.lm.load.folder import make_ordinary
from repsurgery.lm.sites.names import is_conv1d
from repsurgery.lm.steer.placing import weight_placement
from repsurgery.lm.steer.torch_maps import to_tensor

__all__ = ["LoraExport", "to_lora"]

Constant = Literal["carry", "omit"]


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
    constant : {"none", "carried", "omitted"}
        ``none``: it is zero. ``carried``: it is the bias of the adapter's second factor (PEFT's ``lora_bias``).
        ``omitted``: it is not zero and not in the adapter.
    mergeable : bool
        Whether ``merge_and_unload`` works: the layer has a bias, or there is no constant to merge.
    """

    folder: Path
    site: str
    target: str
    rank: int
    error: float
    constant_norm: float
    constant: Literal["none", "carried", "omitted"]
    mergeable: bool

    @property
    def exact(self) -> bool:
        """Whether model and adapter compute what the steered model computes, up to rounding."""
        return self.error == 0 and self.constant != "omitted"


def to_lora(
    model: nn.Module,
    steering: Any,
    site: str | None,
    folder: str | os.PathLike[str],
    *,
    strength: float | None = None,
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
    site : str or None
        As for `fold`, except sites where only a LayerNorm can hold a map.
    folder : path
        Created if missing; load it with ``peft.PeftModel.from_pretrained(model, folder)``.
    strength : float or None
        0 leaves the states unchanged, 1 applies the map. None uses the strength of the steering's origin, else 1.
    rank : int or None
        Approximate ΔW by this rank, optimally in the Frobenius norm; ``error`` of the result states the loss.
    constant : {"carry", "omit"}
        ``carry`` puts the constant into the adapter as PEFT's ``lora_bias``, which some servers do not read;
        ``omit`` leaves it out, so that the adapter is exact only where the constant is zero.

    Returns
    -------
    LoraExport

    Guarantees
    ----------
    Model plus adapter equals the hook (test_the_adapter_equals_the_hook).
    """
    peft = _peft()
    require_plain(model)
    inner: Any = model
    if constant not in ("carry", "omit"):
        raise ParameterError(f"constant is {constant!r}; it must be 'carry' or 'omit'.")
    at = weight_placement(model, steering, site, strength, caller="to_lora")
    m, site = single_map(at.steering, at.strength, caller="to_lora"), at.site
    point = checked_fold_point(inner, m, site)
    if point.kind == "norm":
        raise FoldError(
            f"The state at {site!r} is the output of a LayerNorm, which PEFT adapters cannot change. Use lm.fold."
        )
    layer = inner.get_submodule(point.path)
    B, A, error = _factors(layer, point, m, rank)
    shift = _shift(layer, point, m)
    nonzero = bool(shift.any())
    carried = nonzero and constant == "carry"
    config = peft.LoraConfig(
        r=len(A),
        lora_alpha=len(A),
        target_modules=[point.path],
        lora_bias=carried,
        fan_in_fan_out=is_conv1d(layer),
        task_type="CAUSAL_LM" if inner.can_generate() else None,
        base_model_name_or_path=getattr(inner.config, "_name_or_path", "") or None,
        inference_mode=True,
    )
    tensors = {"lora_A.weight": A, "lora_B.weight": B, **({"lora_B.bias": shift} if carried else {})}
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    dtype = torch.float64 if layer.weight.dtype == torch.float64 else torch.float32
    named = {f"base_model.model.{point.path}.{name}": t.to(dtype).contiguous() for name, t in tensors.items()}
    save_file(named, target / "adapter_model.safetensors", metadata={"format": "pt"})
    make_ordinary(target)
    config.save_pretrained(str(target))
    state: Literal["none", "carried", "omitted"] = "carried" if carried else "omitted" if nonzero else "none"
    mergeable = not carried or bias_of(layer) is not None
    return LoraExport(target, site, point.path, len(A), error, float(shift.norm()), state, mergeable)


def _factors(
    layer: nn.Module, point: FoldPoint, m: AffineMap, rank: int | None
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return B (out, r), A (r, in) and the relative error of B A as ΔW."""
    W = matrix_of(layer)
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 1):
        raise ParameterError(f"rank is {rank!r}; it must be a positive whole number, or None.")
    pair = _low_rank(m)
    if pair is None and rank is None:
        raise FoldError(
            f"A − I of this {m.kind} map has full rank, so no small adapter equals it. Use a method of low rank "
            "(LEACE, MidSteer, MeanMatching), give rank= to keep the best directions, or fold: lm.fold."
        )
    if pair is not None and (rank is None or pair[0].shape[1] <= rank):
        left, right = pair
        B, A = (W @ left, right) if point.kind == "reader" else (left, right @ W)
        if B.shape[1] == 0:
            return W.new_zeros(len(W), 1), W.new_zeros(1, W.shape[1]), 0.0
        return B, A, 0.0
    D = to_tensor(m.weight) - torch.eye(m.dim, dtype=torch.float64)
    U, s, Vt = torch.linalg.svd(W @ D if point.kind == "reader" else D @ W, full_matrices=False)
    root = s[:rank].sqrt()
    error = float(s[rank:].norm() / s.norm()) if s.any() else 0.0
    return U[:, :rank] * root, root[:, None] * Vt[:rank], error


def _low_rank(m: AffineMap) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return L (d, r), R (r, d) with A = I + L R and r at most d / 2; None where the rank is higher."""
    match m:
        case Identity() | Translation():
            return torch.zeros(m.dim, 0, dtype=torch.float64), torch.zeros(0, m.dim, dtype=torch.float64)
        case LowRank() if m.scale == 1:
            return to_tensor(m.left), to_tensor(m.right)
    D = to_tensor(m.weight) - torch.eye(m.dim, dtype=torch.float64)
    U, s, Vt = torch.linalg.svd(D)
    # the rounding error of A itself, whose entries are of the size of 1 and of D
    r = int((s > m.dim * torch.finfo(torch.float64).eps * (1 + s.max())).sum())
    return (U[:, :r] * s[:r], Vt[:r]) if r <= m.dim // 2 else None


def _shift(layer: nn.Module, point: FoldPoint, m: AffineMap) -> torch.Tensor:
    """Return the constant (out,) to be added to the output of the layer with its own bias."""
    b, own = to_tensor(m.bias), bias_of(layer)
    if point.kind == "reader":
        return matrix_of(layer) @ b
    if own is None or point.kind == "stream":
        return b
    return to_tensor(m.linear(own[None].numpy())[0]) - own + b


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise MissingExtraError(f"to_lora needs PEFT ({error}): pip install 'repsurgery[export]'") from error
    return peft
