"""The low-rank change that a map makes to one linear layer: ΔW = B A and a constant."""

from typing import Any

import torch
from torch import nn

from repsurgery.affine import AffineMap, Identity, LowRank, Translation
from repsurgery.errors import FoldError, ParameterError
from repsurgery.lm.fold.fold_points import FoldPoint, checked_fold_point
from repsurgery.lm.fold.weights import bias_of, matrix_of
from repsurgery.lm.steer.torch_maps import to_tensor

__all__ = ["check_rank", "constant_of", "factors", "lora_point", "low_rank"]


def lora_point(model: nn.Module, m: AffineMap, site: str) -> FoldPoint:
    """Return the layer that an adapter for ``m`` at ``site`` changes, or raise an error if there is none."""
    point = checked_fold_point(model, m, site)
    if point.kind == "norm":
        raise FoldError(
            f"The state at {site!r} is the output of a LayerNorm, which PEFT adapters cannot change. Use lm.fold."
        )
    return point


def check_rank(rank: Any) -> int | None:
    """Return ``rank``, or raise an error unless it is a positive whole number or None."""
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 1):
        raise ParameterError(f"rank is {rank!r}; it must be a positive whole number, or None.")
    return rank


def factors(
    layer: nn.Module, point: FoldPoint, m: AffineMap, rank: int | None
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return B (out, r), A (r, in) and the relative error of B A as ΔW; r may be 0."""
    W, pair = matrix_of(layer), low_rank(m)
    if pair is None and rank is None:
        raise FoldError(
            f"A − I of this {m.kind} map has full rank, so no small adapter equals it. Use a method of low rank "
            "(LEACE, MidSteer, MeanMatching), give rank= to keep the best directions, or fold: lm.fold."
        )
    if pair is not None and (rank is None or pair[0].shape[1] <= rank):
        left, right = pair
        B, A = (W @ left, right) if point.kind == "reader" else (left, right @ W)
        return B, A, 0.0
    D = to_tensor(m.weight) - torch.eye(m.dim, dtype=torch.float64)
    U, s, Vt = torch.linalg.svd(W @ D if point.kind == "reader" else D @ W, full_matrices=False)
    root = s[:rank].sqrt()
    error = float(s[rank:].norm() / s.norm()) if s.any() else 0.0
    return U[:, :rank] * root, root[:, None] * Vt[:rank], error


def low_rank(m: AffineMap) -> tuple[torch.Tensor, torch.Tensor] | None:
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


def constant_of(layer: nn.Module, point: FoldPoint, m: AffineMap) -> torch.Tensor:
    """Return the constant (out,) to be added to the output of the layer with its own bias."""
    b, own = to_tensor(m.bias), bias_of(layer)
    if point.kind == "reader":
        return matrix_of(layer) @ b
    if own is None or point.kind in ("stream", "norm"):
        return b
    return to_tensor(m.linear(own[None].numpy())[0]) - own + b
