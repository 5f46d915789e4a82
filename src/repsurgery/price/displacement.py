"""The displacement Wh + b − h of a steering, and its expected square under a quadratic form, from moments alone."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from repsurgery.affine import AffineMap, Identity, Translation
from repsurgery.arrays import Label, Matrix
from repsurgery.errors import ParameterError, ShapeError
from repsurgery.gates import Gate
from repsurgery.moments import ClassMoments, Moments

__all__ = ["Part", "parts_of", "quadratic"]

Part = tuple[AffineMap, Moments | None, float]
"""A map, the moments of the vectors it acts on, and their share of all vectors."""


def parts_of(steering: Any, moments: Any, share: Any) -> list[Part]:
    """Return the maps of a steering, each with the moments and the share of the positions that it steers.

    Parameters
    ----------
    steering : estimator, steering function or affine map
    moments : Moments, ClassMoments or None
        Of a map that acts on every vector: the moments of all positions; class moments are summed. Of a gated function:
        the moments of the positions that the gate assigns to the map; by label where there are several maps.
    share : float, mapping of label to float, or None
        The share of those positions among all positions. A gated function needs it.
    """
    maps, gate = _maps(steering)
    if gate is not None and not gate.hard:
        raise ParameterError(
            "Behind a soft gate the displacement depends on the strength at each vector, which moments do not show. "
            "Price it on rows: fisher.kl_on(function, X), with X the vectors of all positions."
        )
    if gate is None or gate.reads == "nothing" or None in maps:
        total = moments.total if isinstance(moments, ClassMoments) else moments
        return [(next(iter(maps.values())), _checked(total), 1.0 if share is None else _check_share(share))]
    if moments is None or share is None:
        raise ParameterError(
            "This steering function has a gate, so its price depends on the positions that the gate selects. Pass the "
            "moments of those positions and their share of all positions: kl(function, moments, share=0.2)."
        )
    return [(m, _of(moments, label, maps), _check_share(_share_of(share, label, maps))) for label, m in maps.items()]


def quadratic(F: Matrix, m: AffineMap, moments: Moments | None) -> float:
    """Return E[dᵀFd] for the displacement d = m(h) − h of vectors with these ``moments``; ``F`` is (d, d)."""
    if len(F) != m.dim or (moments is not None and moments.dim != m.dim):
        given = "" if moments is None else f", moments of {moments.dim}"
        raise ShapeError(f"The map acts on {m.dim} features{given}, and the Fisher matrix on {len(F)}. Use one site.")
    if isinstance(m, Identity):
        return 0.0
    if isinstance(m, Translation):
        return float(m.shift @ F @ m.shift)
    if moments is None:
        raise ParameterError(
            f"The displacement of a {m.kind} map depends on the vector, so its price needs their moments: "
            "kl(map, moments). lm.class_moments(..., pooling='all') computes them."
        )
    mean = moments.mean[None]
    spread = moments.root()
    centre = (m.linear(mean) - mean)[0] + m.bias
    D = m.linear(spread) - spread
    return float(centre @ F @ centre + np.einsum("ij,ij->", D @ F, D))


def _maps(steering: Any) -> tuple[Mapping[Label | None, AffineMap], Gate | None]:
    function = getattr(steering, "steering_", steering)
    if isinstance(function, AffineMap):
        return {None: function}, None
    maps = getattr(function, "maps", None)
    if not isinstance(maps, Mapping) or not hasattr(function, "gate"):
        raise ParameterError(
            f"kl got a {type(steering).__name__}; it takes a fitted estimator, a steering function or an affine map."
        )
    return maps, function.gate


def _of(moments: Any, label: Label | None, maps: Mapping[Label | None, AffineMap]) -> Moments | None:
    if not isinstance(moments, Mapping):
        _require_one(maps, "moments")
        return _checked(moments)
    if label not in moments:
        raise ParameterError(
            f"kl got moments of {list(moments)}; it needs those of the positions steered by {label!r}."
        )
    return _checked(moments[label])


def _share_of(share: Any, label: Label | None, maps: Mapping[Label | None, AffineMap]) -> Any:
    if not isinstance(share, Mapping):
        _require_one(maps, "share")
        return share
    if label not in share:
        raise ParameterError(f"kl got shares of {list(share)}; it needs that of {label!r}.")
    return share[label]


def _require_one(maps: Mapping[Label | None, AffineMap], name: str) -> None:
    if len(maps) > 1:
        raise ParameterError(
            f"This steering function has {len(maps)} maps. Pass {name} as a mapping with the labels {list(maps)}."
        )


def _checked(moments: Any) -> Moments | None:
    if moments is not None and not isinstance(moments, Moments):
        raise ParameterError(f"kl got a {type(moments).__name__} for moments; it takes Moments or ClassMoments.")
    return moments


def _check_share(share: Any) -> float:
    if isinstance(share, bool) or not isinstance(share, Real) or not 0 <= float(share) <= 1:
        raise ParameterError(f"share is {share!r}; it must be a number between 0 and 1.")
    return float(share)
