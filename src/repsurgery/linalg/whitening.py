"""Whitening by any factor: Wh with WhᵀWh = Σ⁻¹, applied to a few vectors."""

from typing import Protocol

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from repsurgery.arrays import Mask, Matrix, Vector
from repsurgery.linalg.spectrum import cholesky_or_none, condition_estimate, symmetric_rank
from repsurgery.linalg.transport import Range, factor_range

__all__ = ["Whitening", "by_range", "whitening_of", "whitening_of_factor"]


class Whitening(Protocol):
    """Apply Wh, and its transpose, to columns.

    Attributes
    ----------
    full_rank : bool
    live : (d,) booleans
        Which columns vary, as far as Wh can see.
    """

    full_rank: bool
    live: Mask

    def apply(self, G: Matrix) -> Matrix:
        """Return Wh G for columns G (d, k)."""

    def transpose(self, U: Matrix) -> Matrix:
        """Return Whᵀ U for columns U."""


class _Cholesky:
    """Σ = D C D, C = RᵀR with unit diagonal, so that the scale of columns does not matter; Wh = R⁻ᵀ D⁻¹."""

    full_rank = True

    def __init__(self, R: Matrix, scale: Vector) -> None:
        self._R, self._scale = R, scale[:, None]
        self.live: Mask = np.ones(len(scale), dtype=np.bool_)

    def apply(self, G: Matrix) -> Matrix:
        whitened: Matrix = lapack.dtrtrs(self._R, G / self._scale, lower=0, trans=1)[0]
        return whitened

    def transpose(self, U: Matrix) -> Matrix:
        back: Matrix = lapack.dtrtrs(self._R, U, lower=0)[0]
        return back / self._scale


class _Eigen:
    """Wh = Λ^-½ Vᵀ D⁻¹ on the numerical range; it ignores directions without variance."""

    def __init__(self, basis: Matrix, spread: Vector, scale: Vector) -> None:
        self._V, self._s, self._scale = basis, spread[:, None], scale[:, None]
        self.full_rank = basis.shape[0] == basis.shape[1]
        self.live: Mask = (basis != 0).sum(axis=1) > 0

    def apply(self, G: Matrix) -> Matrix:
        return (self._V.T @ (G / self._scale)) / self._s

    def transpose(self, U: Matrix) -> Matrix:
        return (self._V @ (U / self._s)) / self._scale


def by_range(span: Range) -> Whitening:
    """Return the whitening of Σ = V diag(s²) Vᵀ."""
    return _Eigen(span.basis, span.scale, np.ones(len(span.basis)))


def whitening_of_factor(R: Matrix, tolerance: float, least: Vector, rounding: Vector) -> Whitening:
    """Return the whitening of Σ = RᵀR from its factor R (m, d), m < d, without squaring it; see `whitening_of`."""
    scale = np.sqrt(np.square(R).sum(axis=0))
    dead = scale <= least
    scale[dead] = 1.0
    span = factor_range(np.where(dead, 0.0, R / scale), tolerance)
    return _beyond_rounding(span.basis, span.scale, scale, rounding)


def whitening_of(S: Matrix, tolerance: float, least: Vector, rounding: Vector) -> Whitening:
    """Return the whitening of a covariance (d, d), which is overwritten.

    Columns whose standard deviation is at most ``least`` (d,) count as constant: what varies there is rounding, and
    inverting it would amplify it. So do combinations of columns that vary by no more than the ``rounding`` (d,) of
    their numbers, such as the difference of a column and the same one at an offset.
    """
    scale = np.sqrt(np.diagonal(S))
    dead = scale <= least
    S[dead], S[:, dead], scale[dead] = 0.0, 0.0, 1.0
    S /= scale
    S /= scale[:, None]
    R = cholesky_or_none(S)
    # a direction of unit length rounds by at most the length of the rounding of all columns
    coarsest = max(tolerance, float(np.linalg.norm(rounding / scale)))
    if R is not None and condition_estimate(S, R) * coarsest**2 < 1:
        return _Cholesky(R, scale)
    values, V = linalg.eigh(S, driver="evd", check_finite=False)
    keep = slice(len(values) - symmetric_rank(values, tolerance), None)
    return _beyond_rounding(V[:, keep], np.sqrt(values[keep]), scale, rounding)


def _beyond_rounding(basis: Matrix, spread: Vector, scale: Vector, rounding: Vector) -> Whitening:
    """Return the whitening by those directions, the columns of ``basis``, that vary by more than their rounding."""
    keep = spread > np.linalg.norm(basis * (rounding / scale)[:, None], axis=0)
    return _Eigen(basis[:, keep], spread[keep], scale)
