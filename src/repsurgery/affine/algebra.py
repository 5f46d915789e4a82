"""Composition and interpolation of maps, in the most compact structure that can hold the result."""

from typing import Any, Protocol, TypeVar

import numpy as np

from repsurgery.affine.base import AffineMap, finite_result
from repsurgery.affine.coordinate_maps import Diagonal, Identity, Translation
from repsurgery.affine.matrix_maps import Dense, LowRank
from repsurgery.arrays import Vector
from repsurgery.callers import warn_caller
from repsurgery.errors import ExtrapolationWarning, ParameterError, ShapeError
from repsurgery.origin import ChosenStrength, finite_strength

__all__ = ["beyond_the_map", "check_strength", "compose", "interpolate"]


@finite_result("The composition", "Lower the strength of the maps, or rescale them.")
def compose(outer: AffineMap, inner: AffineMap) -> AffineMap:
    """Return x ↦ outer(inner(x)).

    Raises
    ------
    ShapeError
        The maps act on different numbers of features.
    NonFiniteError
        The composition overflows float64 (test_what_leaves_float64_is_refused_with_its_remedy).
    """
    if outer.dim != inner.dim:
        raise ShapeError(f"Maps on {outer.dim} and on {inner.dim} features cannot be composed; fit both at one site.")
    bias = outer.linear(inner.bias[None])[0] + outer.bias
    match outer, inner:
        case Identity(), _:
            return inner
        case _, Identity():
            return outer
        case Translation(), Translation():
            return Translation(bias)
        case ((Translation() | Diagonal()), (Translation() | Diagonal())):
            return Diagonal(_scale(outer) * _scale(inner), bias)
        case ((Translation() | LowRank()), (Translation() | LowRank())):
            return _compose_low_rank(_low_rank(outer), _low_rank(inner), bias)
    return Dense(outer.linear(inner.weight.T).T, bias)


def _scale(m: AffineMap) -> Vector:
    return m.scale if isinstance(m, Diagonal) else np.ones(m.dim)


def _low_rank(m: AffineMap) -> LowRank:
    if isinstance(m, LowRank):
        return m
    return LowRank(np.zeros((m.dim, 0)), np.zeros((0, m.dim)), m.bias)


def _compose_low_rank(f: LowRank, g: LowRank, bias: Vector) -> AffineMap:
    # (sI + L R)(tI + M Q) = stI + [sM + L R M, t L] [Q; R]
    if f.rank + g.rank >= f.dim:
        return Dense(f.linear(g.weight.T).T, bias)
    left = np.hstack([f.linear(g.left.T).T, g.scale * f.left])
    return LowRank(left, np.vstack([g.right, f.right]), bias, f.scale * g.scale)


def check_strength(t: float) -> float:
    """Return ``t`` as a float; raise if it is not a finite number, warn if it lies outside [0, 1]."""
    strength = finite_strength(t)
    if not (0 <= strength <= 1 or isinstance(t, ChosenStrength)):
        warn_caller(beyond_the_map(strength), ExtrapolationWarning)
    return strength


def beyond_the_map(strength: float) -> str:
    """Return what to say of a ``strength`` outside [0, 1]."""
    return f"strength {strength:g} lies outside [0, 1]: this leaves the geodesic, and no guarantee holds there."


class Interpolable(Protocol):
    """A map or a steering function."""

    def interpolate(self, t: float) -> Any:
        """Return the value at strength ``t``."""


M = TypeVar("M", bound=Interpolable)


def interpolate(m: M, t: float) -> M:
    """Return x ↦ (1 − t) x + t m(x): t = 0 is the identity, t = 1 the map.

    If the map is optimal for its source, this is the Wasserstein geodesic from source to target. A steering
    function is interpolated map by map and keeps its gate.

    Examples
    --------
    >>> import numpy as np, repsurgery as rs
    >>> half = rs.interpolate(rs.Translation(np.array([2.0, 0.0])), 0.5)
    >>> half(np.zeros((1, 2)))
    array([[1., 0.]])
    """
    if not hasattr(m, "interpolate"):
        raise ParameterError(f"interpolate takes a map or a steering function, not {type(m).__name__}.")
    # a steering function checks the strength itself
    interpolated: M = m.interpolate(check_strength(t) if isinstance(m, AffineMap) else t)
    return interpolated
