"""The Gaussian optimal-transport map between two classes, from their moments."""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from repsurgery.affine import AffineMap, Dense, LowRank
from repsurgery.arrays import Matrix
from repsurgery.certificates.issue import Solution
from repsurgery.linalg.shrinkage import NO_SHRINKAGE, Shrinkage
from repsurgery.linalg.spectrum import rank_tolerance
from repsurgery.linalg.transport import Range, Transport, transport_matrix, transport_ranges
from repsurgery.moments import Moments
from repsurgery.steering.shrink import shrunk_covariance

__all__ = ["gaussian_solution"]


class _Linear(NamedTuple):
    """W as a dense matrix, or as scale · I + left @ right."""

    weight: Matrix | None
    left: Matrix | None
    right: Matrix | None
    scale: float


def gaussian_solution(source: Moments, target: Moments, s0: Shrinkage, s1: Shrinkage) -> Solution:
    """Return the optimal map from the (shrunk) Gaussian of ``source`` to that of ``target``."""
    linear, found = _solve(source, target, s0, s1)
    m = _with_means(linear, source, target)
    trace = s0.keep * source.trace + s1.keep * target.trace + (s0.floor + s1.floor) * source.dim
    spread = trace - found.discarded_trace - 2 * found.fidelity
    drift = float(np.square(target.mean - source.mean).sum())
    return Solution(
        map=m,
        optimal_cost=drift + max(spread, 0.0),
        feasible=found.feasible,
        rank_source=found.rank_source,
        rank_target=found.rank_target,
        discarded=found.discarded,
        shrinkage_source=s0,
        shrinkage_target=s1,
    )


def _solve(source: Moments, target: Moments, s0: Shrinkage, s1: Shrinkage) -> tuple[_Linear, Transport]:
    few = source.factor is not None and target.factor is not None and source.count + target.count < source.dim
    if few and s0.floor == s1.floor == 0:
        found = transport_ranges(_kept(source.range(), s0), _kept(target.range(), s1), dense=False)
        return _Linear(None, found.left, found.right, 1.0), found
    if few and s0.floor > 0 and s1.floor > 0:
        return _on_joint_range(source, target, s0, s1)
    tolerances = (_tolerance(source, s0), _tolerance(target, s1))
    found = transport_matrix(shrunk_covariance(source, s0), shrunk_covariance(target, s1), tolerances)
    return _Linear(found.weight, None, None, 1.0), found


def _kept(found: Range, s: Shrinkage) -> Range:
    return found if s == NO_SHRINKAGE else Range(found.basis, found.scale * np.sqrt(s.keep))


def _tolerance(m: Moments, s: Shrinkage) -> float:
    # a floor above rounding makes every direction seen: only the arithmetic limits the rank then
    return rank_tolerance("float64" if s.floor > 0 else m.dtype, m.dim, from_scatter=True)


def _on_joint_range(source: Moments, target: Moments, s0: Shrinkage, s1: Shrinkage) -> tuple[_Linear, Transport]:
    """Solve on span(rows of both classes); off it both covariances are floor · I and W is √(floor₁/floor₀) · I."""
    R0, R1 = source.root(), target.root()
    Q = linalg.qr(np.vstack([R0, R1]).T, mode="economic", check_finite=False)[0]
    S0, S1 = (_reduced(R @ Q, s) for R, s in ((R0, s0), (R1, s1)))
    tolerance = rank_tolerance("float64", Q.shape[1], from_scatter=True)
    found = transport_matrix(S0, S1, (tolerance, tolerance))
    assert found.weight is not None
    scale = float(np.sqrt(s1.floor / s0.floor))
    core = found.weight.copy()
    core[np.diag_indices_from(core)] -= scale
    d, q = Q.shape
    lifted = Transport(
        None,
        None,
        None,
        found.rank_source + d - q,
        found.rank_target + d - q,
        found.fidelity + (d - q) * float(np.sqrt(s0.floor * s1.floor)),
        found.discarded,
        found.discarded_trace,
    )
    return _Linear(None, Q @ core, Q.T, scale), lifted


def _reduced(R: Matrix, s: Shrinkage) -> Matrix:
    S = s.keep * (R.T @ R)
    S[np.diag_indices_from(S)] += s.floor
    return S


def _with_means(linear: _Linear, source: Moments, target: Moments) -> AffineMap:
    zero = np.zeros(source.dim)
    if linear.weight is not None:
        return Dense(linear.weight, target.mean - linear.weight @ source.mean)
    centred = LowRank(linear.left, linear.right, zero, linear.scale)  # type: ignore[arg-type]
    offset = target.mean - centred.linear(source.mean[None])[0]
    return LowRank(centred.left, centred.right, offset, linear.scale)
