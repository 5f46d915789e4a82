"""The kinds of maps, and any of them from its arrays."""

from typing import Any

from numpy.typing import NDArray

from repsurgery.affine.base import AffineMap
from repsurgery.affine.coordinate_maps import Diagonal, Identity, Translation
from repsurgery.affine.matrix_maps import Dense, LowRank
from repsurgery.errors import ParameterError, ShapeError

__all__ = ["from_arrays"]

_KINDS: dict[str, type[AffineMap]] = {c.kind: c for c in (Identity, Translation, Diagonal, LowRank, Dense)}


def from_arrays(kind: str, arrays: dict[str, NDArray[Any]]) -> AffineMap:
    """Rebuild a map from its ``kind`` and `AffineMap.arrays`."""
    if kind not in _KINDS:
        raise ParameterError(f"There is no map of kind {kind!r}; the kinds are {sorted(_KINDS)}.")
    if kind == "identity":
        size = arrays.pop("size")
        if arrays or size.shape != () or size.dtype.kind not in "iu":
            raise ShapeError(f"An identity has one whole number 'size', not {size.dtype} of shape {size.shape}.")
        return Identity(int(size))
    return _KINDS[kind](**arrays)
