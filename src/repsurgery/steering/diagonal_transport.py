"""Diagonal Gaussian transport: match mean and variance of every coordinate on its own."""

from typing import ClassVar

import numpy as np

from repsurgery.affine import AffineMap, Diagonal
from repsurgery.arrays import Mask, Vector
from repsurgery.certificates.certificate import Claim
from repsurgery.certificates.from_moments import Solution
from repsurgery.moments import Moments
from repsurgery.moments.shrinkage import Shrinkage
from repsurgery.steering.base import METHODS
from repsurgery.steering.toward import TowardTarget

__all__ = ["DiagonalTransport"]


@METHODS.register("diagonal")
class DiagonalTransport(TowardTarget):
    """Give each coordinate of a source class the target's mean and variance; correlations are not matched.

    s(h)_j = (σ₁ⱼ / σ₀ⱼ)(h_j − μ₀ⱼ) + μ₁ⱼ: O(d) to store and to apply.

    Parameters
    ----------
    source, target, shrinkage, ridge, alpha, gate, precision, folds, random_state
        See `MiMiC`; shrinkage acts on the variances. ``alpha="auto"`` judges the whole covariances.

    Guarantees
    ----------
    Means and variances are the target's in every coordinate, hence EBBN = 0
    (test_diagonal_transport_equalises_variances).
    No diagonal affine map is cheaper, nor any affine map with those variances: ‖μ₁ − μ₀‖² + Σ(σ₁ⱼ − σ₀ⱼ)²
    (test_cost_attains_the_stated_optimum).
    A coordinate constant in the source is only shifted (test_constant_columns_are_only_shifted).
    """

    claims: ClassVar[tuple[Claim, ...]] = ("means", "variances", "neighbours")
    shrinks: ClassVar[bool] = True

    def _pair(self, source: Moments, target: Moments, s0: Shrinkage, s1: Shrinkage) -> Solution:
        v0, v1 = s0.keep * source.variance + s0.floor, s1.keep * target.variance + s1.floor
        varies = v0 > 0 if s0.floor > 0 else _varies(source)
        sd0, sd1 = np.sqrt(v0), np.sqrt(v1)
        scale = np.where(varies, sd1 / np.where(varies, sd0, 1.0), 1.0)
        stuck = ~varies & (_varies(target) if s1.floor == 0 else True)
        optimal = np.square(target.mean - source.mean).sum() + np.square((sd1 - sd0)[varies]).sum()
        return Solution(
            Diagonal(scale, target.mean - scale * source.mean),
            float(optimal),
            feasible=not stuck.any(),
            rank_source=int(varies.sum()),
            rank_target=int(_varies(target).sum()),
            discarded=float(np.linalg.norm(v1[stuck])),
            moved=_moved(scale, target, s0, s1),
        )

    def _left(self, m: AffineMap, source: Moments, target: Moments) -> float:
        return float(np.linalg.norm(m.linear(np.diag(np.sqrt(source.variance))).diagonal() ** 2 - target.variance))


def _moved(scale: Vector, target: Moments, s0: Shrinkage, s1: Shrinkage) -> float:
    # the ridge identity holds coordinate by coordinate
    shift = (s1.keep - s0.keep) * target.variance + s1.floor - s0.floor * scale**2
    return float(np.linalg.norm(shift) / s0.keep) if s0.keep > 0 else float("inf")


def _varies(m: Moments) -> Mask:
    # a column counts as constant when its standard deviation is within the rounding of its mean
    eps = np.finfo(np.float64 if m.dtype == "float64" else np.float32).eps
    floor: Vector = 4 * eps * np.abs(m.mean)
    varies: Mask = np.sqrt(m.variance) > floor
    return varies
