"""Frozen affine maps and their algebra."""

from repsurgery.affine.algebra import compose, interpolate
from repsurgery.affine.base import AffineMap
from repsurgery.affine.maps import Dense, Diagonal, Identity, LowRank, Translation

__all__ = ["AffineMap", "Dense", "Diagonal", "Identity", "LowRank", "Translation", "compose", "interpolate"]
