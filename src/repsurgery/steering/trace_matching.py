"""Trace matching: mean matching and one scalar."""

from typing import ClassVar

import numpy as np

from repsurgery.affine import Diagonal
from repsurgery.certificates.certificate import Claim
from repsurgery.certificates.from_moments import Solution
from repsurgery.moments import Moments
from repsurgery.moments.shrinkage import Shrinkage
from repsurgery.steering.base import METHODS
from repsurgery.steering.toward import TowardTarget

__all__ = ["TraceMatching"]


@METHODS.register("trace")
class TraceMatching(TowardTarget):
    """Match the mean and the total variance: the cheapest affine map with equal means and no neighbour bias.

    s(h) = √(tr Σ₁ / tr Σ₀) (h − μ₀) + μ₁. Expected bias by neighbours depends on traces only, so one scalar is enough.

    Parameters
    ----------
    source, target, shrinkage, ridge, alpha, gate, precision, folds, random_state
        See `MeanMatching`.

    Guarantees
    ----------
    The steered class has the target's mean and trace, hence EBBN = 0 (test_trace_matching_has_no_neighbour_bias).
    No affine map with both is cheaper: ‖μ₁ − μ₀‖² + (√tr Σ₁ − √tr Σ₀)² (test_cost_attains_the_stated_optimum).
    """

    claims: ClassVar[tuple[Claim, ...]] = ("means", "neighbours")

    def _pair(self, source: Moments, target: Moments, s0: Shrinkage, s1: Shrinkage) -> Solution:
        t0, t1 = np.sqrt(source.trace), np.sqrt(target.trace)
        scale = t1 / t0 if t0 > 0 else 1.0
        offset = target.mean - scale * source.mean
        optimal = np.square(target.mean - source.mean).sum() + (t1 - t0) ** 2 * (t0 > 0)
        feasible = bool(t0 > 0 or t1 == 0)
        missing = 0.0 if feasible else float(np.sqrt(target.squared_norm))
        return Solution(
            Diagonal(np.full(source.dim, scale), offset), float(optimal), feasible=feasible, discarded=missing
        )
