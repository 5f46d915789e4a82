"""Checks before a steering enters the weights: one map for every vector, of a structure that the site can hold."""

from typing import Any

import numpy as np
from torch import nn

from repsurgery.affine import AffineMap, Diagonal, Identity, LowRank, Translation
from repsurgery.arrays import Vector
from repsurgery.errors import FoldError, ShapeError
from repsurgery.gates import AlwaysGate
from repsurgery.lm.fold.fold_points import FoldPoint, find_fold_point, nearest_foldable
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.lm.steer.forward_context import steering_in_force
from repsurgery.lm.steer.row_steering import as_steering
from repsurgery.steering.function import EVERYBODY

__all__ = ["checked_fold_point", "diagonal_of", "require_plain", "single_map"]


def require_plain(model: nn.Module) -> None:
    """Refuse a model that does not compute with its weights alone: one with adapters, or one being steered."""
    if unwrapped(model) is not model or getattr(model, "_hf_peft_config_loaded", False):
        raise FoldError(
            f"This {type(model).__name__} has PEFT adapters, which a new weight would ignore. Merge them first: "
            "model.merge_and_unload()."
        )
    if steering_in_force(model, in_any_thread=True):
        raise FoldError("This model is being steered at the moment. Leave the `with lm.steer(...)` block first.")


def single_map(steering: Any, strength: float, *, caller: str) -> AffineMap:
    """Return the one map by which ``steering`` steers every vector, at ``strength``."""
    function = as_steering(steering, caller=caller)
    if EVERYBODY not in function.maps and not isinstance(function.gate, AlwaysGate):
        raise FoldError(
            f"This steering function asks its {function.gate.kind} gate which vectors to steer, so it is not affine "
            "and no weight can hold it. Fit with gate='always', pass the map itself (estimator.map_), or steer with "
            "hooks: lm.steer."
        )
    if strength != 1:
        function = function.interpolate(strength)
    return next(iter(function.maps.values()))


def checked_fold_point(model: nn.Module, m: AffineMap, site: str) -> FoldPoint:
    """Return the fold point of ``site``, or raise an error if it cannot hold a map like ``m``."""
    point = find_fold_point(model, site)
    if m.dim != point.width:
        raise ShapeError(
            f"The map for site {site!r} has {m.dim} features; {type(model).__name__} has {point.width} there. "
            "Fit it on vectors extracted at this site of this model."
        )
    scale = diagonal_of(m)
    if point.kind == "stream" and (scale is None or (scale != 1).any()):
        raise FoldError(_refusal(model, point, m, "a sum of several layers' outputs", "translations"))
    if point.kind == "norm" and scale is None:
        raise FoldError(_refusal(model, point, m, "the output of a LayerNorm", "translations and diagonal maps"))
    return point


def _refusal(model: nn.Module, point: FoldPoint, m: AffineMap, state: str, accepted: str) -> str:
    return (
        f"The state at {point.site!r} is {state}, which holds {accepted} only, not a {m.kind} map. "
        f"{nearest_foldable(model, point.site)} Or steer with hooks: lm.steer."
    )


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
