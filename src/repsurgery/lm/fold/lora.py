"""Write a map as a PEFT LoRA adapter: ΔW = (A − I) W, which has the rank of A − I."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import nn

from repsurgery.affine import AffineMap, Identity, LowRank, Translation
from repsurgery.errors import FoldError, MissingExtraError, ParameterError
from repsurgery.lm.fold.fold_checks import checked_seam, only_map, require_plain
from repsurgery.lm.fold.fold_points import Seam
from repsurgery.lm.fold.weights import bias_of, is_conv1d, matrix_of
from repsurgery.lm.load.folder import make_ordinary
from repsurgery.lm.steer.placing import place
from repsurgery.lm.steer.torch_maps import to_tensor

__all__ = ["LoraExport", "to_lora"]

Constant = Literal["carry", "omit"]


@dataclass(frozen=True, slots=True)
class LoraExport:
    """What a LoRA adapter holds of the map it was made from.

    Attributes
    ----------
    folder : Path
    site : str
    target : str
        The path of the layer that the adapter changes.
    rank : int
        Of the adapter; at least 1, which PEFT needs.
    error : float
        ‖ΔW − BA‖ / ‖ΔW‖ in the Frobenius norm: 0 where the adapter holds the whole of A.
    constant_norm : float
        ‖c‖ of the constant that the layer's output needs on top of its own bias.
    constant : {"none", "carried", "omitted"}
        ``none``: it is zero. ``carried``: it is the bias of the adapter's second factor (PEFT's ``lora_bias``).
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
        """Whether model and adapter compute what the steered model does, to rounding."""
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
        It is only read.
    steering : AffineMap, or a SteeringFunction or fitted estimator that steers every vector by one map
        x ↦ Ax + b. A − I must have low rank (LEACE, MidSteer, translations), unless ``rank`` is given.
    site : str or None
        As for `fold`, except sites that only a LayerNorm holds.
    folder : path
        Made where missing; load it with ``peft.PeftModel.from_pretrained(model, folder)``.
    strength : float or None
        0 leaves the states untouched, 1 is the map. None is what the steering's origin asks for, else 1.
    rank : int or None
        Keep this many directions of ΔW, the best ones in the Frobenius norm; ``error`` states what is lost.
    constant : {"carry", "omit"}
        ``carry`` puts the constant into the adapter as PEFT's ``lora_bias``, which some servers do not read;
        ``omit`` leaves it out, and the adapter is then exact only where the constant is zero.

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
        raise ParameterError(f"constant is {constant!r}; it is 'carry' or 'omit'.")
    at = place(model, steering, site, strength, caller="to_lora")
    m, site = only_map(at.steering, at.strength, caller="to_lora"), at.site
    seam = checked_seam(inner, m, site)
    if seam.kind == "norm":
        raise FoldError(
            f"The state at {site!r} is the output of a LayerNorm, which PEFT adapters do not reach. Use lm.fold."
        )
    layer = inner.get_submodule(seam.path)
    B, A, error = _factors(layer, seam, m, rank)
    shift = _shift(layer, seam, m)
    some = bool(shift.any())
    carried = some and constant == "carry"
    config = peft.LoraConfig(
        r=len(A),
        lora_alpha=len(A),
        target_modules=[seam.path],
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
    named = {f"base_model.model.{seam.path}.{name}": t.to(dtype).contiguous() for name, t in tensors.items()}
    save_file(named, target / "adapter_model.safetensors", metadata={"format": "pt"})
    make_ordinary(target)
    config.save_pretrained(str(target))
    state: Literal["none", "carried", "omitted"] = "carried" if carried else "omitted" if some else "none"
    mergeable = not carried or bias_of(layer) is not None
    return LoraExport(target, site, seam.path, len(A), error, float(shift.norm()), state, mergeable)


def _factors(layer: nn.Module, seam: Seam, m: AffineMap, rank: int | None) -> tuple[torch.Tensor, torch.Tensor, float]:
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
        B, A = (W @ left, right) if seam.kind == "reader" else (left, right @ W)
        if B.shape[1] == 0:
            return W.new_zeros(len(W), 1), W.new_zeros(1, W.shape[1]), 0.0
        return B, A, 0.0
    D = to_tensor(m.weight) - torch.eye(m.dim, dtype=torch.float64)
    U, s, Vt = torch.linalg.svd(W @ D if seam.kind == "reader" else D @ W, full_matrices=False)
    root = s[:rank].sqrt()
    error = float(s[rank:].norm() / s.norm()) if s.any() else 0.0
    return U[:, :rank] * root, root[:, None] * Vt[:rank], error


def _low_rank(m: AffineMap) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return L (d, r), R (r, d) with A = I + L R and r at most d / 2; None where there are none."""
    match m:
        case Identity() | Translation():
            return torch.zeros(m.dim, 0, dtype=torch.float64), torch.zeros(0, m.dim, dtype=torch.float64)
        case LowRank() if m.scale == 1:
            return to_tensor(m.left), to_tensor(m.right)
    D = to_tensor(m.weight) - torch.eye(m.dim, dtype=torch.float64)
    U, s, Vt = torch.linalg.svd(D)
    # rounding of A itself, whose entries are of the size of 1 and of D
    r = int((s > m.dim * torch.finfo(torch.float64).eps * (1 + s.max())).sum())
    return (U[:, :r] * s[:r], Vt[:r]) if r <= m.dim // 2 else None


def _shift(layer: nn.Module, seam: Seam, m: AffineMap) -> torch.Tensor:
    """Return the constant (out,) to be added to what the layer puts out with its own bias."""
    b, own = to_tensor(m.bias), bias_of(layer)
    if seam.kind == "reader":
        return matrix_of(layer) @ b
    if own is None or seam.kind == "stream":
        return b
    return to_tensor(m.linear(own[None].numpy())[0]) - own + b


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise MissingExtraError(f"to_lora needs PEFT ({error}): pip install 'repsurgery[export]'") from error
    return peft
