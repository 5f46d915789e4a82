"""The Gaussian optimal-transport map between two classes, from their moments."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import linalg

from repsurgery.affine import AffineMap, Dense, LowRank, Translation
from repsurgery.arrays import Matrix
from repsurgery.certificates.from_moments import Solution
from repsurgery.linalg.spectrum import rank_tolerance
from repsurgery.linalg.transport import Transport, transport_factors, transport_matrix
from repsurgery.moments import Moments
from repsurgery.moments.shrinkage import NO_SHRINKAGE, Shrinkage, moved, shrunk_covariance

__all__ = ["gaussian_solution"]


class _Linear(NamedTuple):
    """W as a dense matrix, or as scale · I + left @ right; and the covariance gap that the shrinkage causes."""

    weight: Matrix | None
    left: Matrix | None
    right: Matrix | None
    scale: float = 1.0
    moved: float = 0.0


def gaussian_solution(source: Moments, target: Moments, s0: Shrinkage, s1: Shrinkage) -> Solution:
    """Return the optimal map from the (shrunk) Gaussian of ``source`` to that of ``target``."""
    drift = float(np.square(target.mean - source.mean).sum())
    if s0 == s1 and _same_spread(source, target):
        return Solution(Translation(target.mean - source.mean), drift)
    linear, transport = _solve(source, target, s0, s1)
    trace = s0.keep * source.trace + s1.keep * target.trace + (s0.floor + s1.floor) * source.dim
    spread = trace - transport.discarded_trace - 2 * transport.fidelity
    return Solution(
        map=_with_means(linear, source, target),
        optimal_cost=drift + max(spread, 0.0),
        feasible=transport.feasible,
        rank_source=transport.rank_source,
        rank_target=transport.rank_target,
        discarded=transport.discarded,
        moved=linear.moved,
        root=transport.root if s0 == NO_SHRINKAGE else None,
    )


def _same_spread(a: Moments, b: Moments) -> bool:
    """Whether both store the same covariance, bit for bit, as fully pooled classes do: W = I, whatever its rank."""
    if a.weight != b.weight:
        return False
    if a.dense is not None and b.dense is not None:
        return np.array_equal(a.dense, b.dense)
    return a.factor is not None and b.factor is not None and np.array_equal(a.factor, b.factor)


def _solve(source: Moments, target: Moments, s0: Shrinkage, s1: Shrinkage) -> tuple[_Linear, Transport]:
    few = source.factor is not None and target.factor is not None and source.count + target.count < source.dim
    if few and s0 == s1 == NO_SHRINKAGE:
        transport = transport_factors(source.root(), target.root(), (source.rank_tolerance, target.rank_tolerance))
        return _Linear(None, transport.left, transport.right), transport
    if few and s0.floor > 0 and s1.floor > 0:
        return _on_joint_range(source, target, s0, s1)
    tolerances = (_tolerance(source, s0), _tolerance(target, s1))
    S0, S1 = shrunk_covariance(source, s0), shrunk_covariance(target, s1)
    transport = transport_matrix(S0, S1, tolerances, overwrite=True)
    del S0, S1
    assert transport.weight is not None
    W = transport.weight
    residual = 0.0 if s0 == s1 == NO_SHRINKAGE else moved(W, target.covariance, s0, s1)
    return _Linear(W, None, None, moved=residual), transport


def _tolerance(m: Moments, s: Shrinkage) -> float:
    # with a floor above rounding every direction has variance, and only the arithmetic limits the rank
    return rank_tolerance("float64" if s.floor > 0 else m.dtype, m.dim, from_scatter=True)


def _on_joint_range(source: Moments, target: Moments, s0: Shrinkage, s1: Shrinkage) -> tuple[_Linear, Transport]:
    """Solve on span(rows of both classes); off it both covariances are floor · I and W is √(floor₁/floor₀) · I."""
    R0, R1 = source.root(), target.root()
    Q = linalg.qr(np.vstack([R0, R1]).T, mode="economic", check_finite=False)[0]
    (d, q), scale = Q.shape, float(np.sqrt(s1.floor / s0.floor))
    tolerance = rank_tolerance("float64", q, from_scatter=True)
    T1 = R1 @ Q
    transport = transport_matrix(_reduced(R0 @ Q, s0), _reduced(T1, s1), (tolerance, tolerance), overwrite=True)
    assert transport.weight is not None
    residual = moved(transport.weight, T1.T @ T1, s0, s1)
    core = transport.weight.copy()
    core[np.diag_indices_from(core)] -= scale
    lifted = replace(
        transport,
        weight=None,
        rank_source=transport.rank_source + d - q,
        rank_target=transport.rank_target + d - q,
        fidelity=transport.fidelity + (d - q) * float(np.sqrt(s0.floor * s1.floor)),
    )
    return _Linear(None, Q @ core, Q.T, scale, residual), lifted


def _reduced(R: Matrix, s: Shrinkage) -> Matrix:
    S = s.keep * (R.T @ R)
    S[np.diag_indices_from(S)] += s.floor
    return S


def _with_means(linear: _Linear, source: Moments, target: Moments) -> AffineMap:
    if linear.weight is not None:
        return Dense(linear.weight, target.mean - linear.weight @ source.mean)
    assert linear.left is not None and linear.right is not None
    image = linear.scale * source.mean + linear.left @ (linear.right @ source.mean)
    return LowRank(linear.left, linear.right, target.mean - image, linear.scale)
