"""The Gaussian optimal-transport matrix: W with W Σ₀ Wᵀ = Σ₁ at the smallest E‖h − Wh‖².

Three algorithms, chosen by rank and condition:

* `_by_pencil`: one generalised eigenproblem, the fastest, where cond(Σ₀) · cond(Σ₁) is small enough;
* `_by_procrustes`: W = R₁ᵀ V Uᵀ R₀⁻ᵀ with R₀ R₁ᵀ = U s Vᵀ (Σ = RᵀR), which does not square the condition number, and
  with columns sorted by their size keeps the digits of narrow ones beside wide ones;
* `transport_ranges`: the same Procrustes problem on ranges, exact for every feasible pair of ranks; `transport_factors`
  is a faster variant where the rows of both factors are independent.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import blas, lapack

from repsurgery.arrays import Mask, Matrix, Vector
from repsurgery.linalg.spectrum import cholesky_or_none, condition_estimate, fortran, symmetric_rank

__all__ = [
    "Range",
    "Transport",
    "factor_range",
    "symmetric_range",
    "transport_factors",
    "transport_matrix",
    "transport_ranges",
]

PENCIL_CONDITION_LIMIT = 1e14
"""Up to this product of condition numbers the pencil agrees with 60-digit arithmetic to 3e-10, at half the cost."""
_ESTIMATE_SLACK = 100.0


@dataclass(frozen=True, slots=True)
class Transport:
    """An optimal map between two centred covariances.

    Attributes
    ----------
    weight : (d, d) array, or None where only the update is stored
    left, right : (d, r), (r, d) arrays, or None where only the weight is stored
        W = I + left @ right.
    rank_source, rank_target : int
    fidelity : float
        tr (Σ₀^½ Σ₁ Σ₀^½)^½ for the covariance that is reached.
    discarded : float
        ‖Σ₁ − reached‖_F, the smallest residual any affine map attains; 0 where feasible.
    discarded_trace : float
        tr(Σ₁ − reached).
    root : (d, d) array, or None
        Upper triangular R₀ with R₀ᵀR₀ = Σ₀, if it was computed on the way.
    """

    weight: Matrix | None
    left: Matrix | None
    right: Matrix | None
    rank_source: int
    rank_target: int
    fidelity: float
    discarded: float = 0.0
    discarded_trace: float = 0.0
    root: Matrix | None = None

    @property
    def feasible(self) -> bool:
        """Whether some affine map reaches Σ₁, which holds exactly when rank Σ₁ ≤ rank Σ₀."""
        return self.rank_target <= self.rank_source


@dataclass(frozen=True, slots=True)
class Range:
    """Σ = V diag(s²) Vᵀ with ``basis`` V (d, r) orthonormal and ``scale`` s (r,) positive, falling."""

    basis: Matrix
    scale: Vector


def symmetric_range(S: Matrix, tolerance: float) -> Range:
    """Return the numerical range of a covariance (d, d)."""
    values, vectors = linalg.eigh(S, driver="evd", check_finite=False)
    rank = symmetric_rank(values, tolerance)
    order = slice(len(values) - 1, len(values) - 1 - rank if rank < len(values) else None, -1)
    return Range(vectors[:, order], np.sqrt(values[order]))


def factor_range(R: Matrix, tolerance: float) -> Range:
    """Return the numerical range of Σ = RᵀR from its factor R (m, d), m < d, without squaring it."""
    if len(R) == 0:
        return Range(np.zeros((R.shape[1], 0)), np.zeros(0))
    Q, T = linalg.qr(R.T, mode="economic", check_finite=False)
    U, s, _ = linalg.svd(T, check_finite=False)
    rank = int((s > tolerance * s.max(initial=0.0)).sum())
    return Range(Q @ U[:, :rank], s[:rank])


def transport_matrix(S0: Matrix, S1: Matrix, tolerance: tuple[float, float], *, overwrite: bool = False) -> Transport:
    """Return the optimal map between dense covariances (d, d), with a rank ``tolerance`` per class.

    With ``overwrite`` both covariances may be used as work space.
    """
    R0, R1 = cholesky_or_none(S0), cholesky_or_none(S1)
    if R0 is not None and R1 is not None:
        c0, c1 = condition_estimate(S0, R0), condition_estimate(S1, R1)
        if all(c * t**2 * _ESTIMATE_SLACK < 1 for c, t in zip((c0, c1), tolerance, strict=True)):
            if c0 * c1 < PENCIL_CONDITION_LIMIT:
                del R1
                return _by_pencil(S1, R0, overwrite=overwrite)
            return _by_procrustes(R0, R1)
        if all(_full_rank(S, R, t) for S, R, t in zip((S0, S1), (R0, R1), tolerance, strict=True)):
            return _by_sorted_procrustes(S0, S1, R0)
    varies = (np.diagonal(S0) > 0) | (np.diagonal(S1) > 0)
    if varies.any() and not varies.all():  # a column that is constant in both classes hides no scale of the others
        return _embedded(transport_matrix(_block(S0, varies), _block(S1, varies), tolerance), varies)
    source, target = symmetric_range(S0, tolerance[0]), symmetric_range(S1, tolerance[1])
    d = S0.shape[0]
    if R0 is not None and R1 is not None and len(source.scale) == len(target.scale) == d:
        return _by_procrustes(R0, R1)
    return transport_ranges(source, target, dense=True)


def _full_rank(S: Matrix, R: Matrix, tolerance: float) -> bool:
    """Whether no column depends on the others, in units of the columns: a wide column does not hide a narrow one."""
    scale = np.sqrt(np.diagonal(S))
    return condition_estimate(S / scale / scale[:, None], R / scale) * tolerance**2 * _ESTIMATE_SLACK < 1


def _by_sorted_procrustes(S0: Matrix, S1: Matrix, R0: Matrix) -> Transport:
    # from the widest column to the narrowest, the factors are graded, and no column costs the digits of the others
    order = np.argsort(-np.diagonal(S0) * np.diagonal(S1), kind="stable")
    factors = [cholesky_or_none(_block(S, order)) for S in (S0, S1)]
    assert factors[0] is not None and factors[1] is not None
    found = _by_procrustes(factors[0], factors[1])
    assert found.weight is not None
    weight = np.empty_like(found.weight)
    weight[np.ix_(order, order)] = found.weight
    return replace(found, weight=weight, root=R0)


def _block(S: Matrix, columns: NDArray[Any]) -> Matrix:
    return np.ascontiguousarray(S[columns][:, columns])


def _embedded(found: Transport, columns: Mask) -> Transport:
    """Return the map that acts on some of the columns and leaves the others."""
    assert found.weight is not None
    weight = np.eye(len(columns))
    weight[np.ix_(columns, columns)] = found.weight
    return replace(found, weight=weight, root=None)


def _by_pencil(S1: Matrix, R0: Matrix, *, overwrite: bool = False) -> Transport:
    # Σ₁ Σ₀ v = λ v with Vᵀ Σ₀ V = I gives Σ₁ = V Λ Vᵀ, hence W = V Λ^½ Vᵀ; with V = R₀⁻¹ Y, R₀ Σ₁ R₀ᵀ = Y Λ Yᵀ
    # in the lower triangle, because the product is graded and reducing the upper one loses a digit
    C, _ = lapack.dsygst(fortran(S1), np.asfortranarray(R0.T), itype=2, lower=1, overwrite_a=overwrite)
    values, Y = linalg.eigh(C, lower=True, driver="evd", check_finite=False, overwrite_a=True)
    values = np.maximum(values, 0.0)
    Y *= values**0.25
    V = blas.dtrsm(1.0, R0, Y, lower=0, overwrite_b=1)
    d = len(values)
    return Transport(V @ V.T, None, None, d, d, float(np.sqrt(values).sum()), root=R0)


def _by_procrustes(R0: Matrix, R1: Matrix) -> Transport:
    U, s, Vt = linalg.svd(R0 @ R1.T, check_finite=False)
    Wt, _ = lapack.dtrtrs(R0, U @ (Vt @ R1), lower=0)
    d = len(s)
    return Transport(np.ascontiguousarray(Wt.T), None, None, d, d, float(s.sum()), root=R0)


def transport_factors(R0: Matrix, R1: Matrix, tolerance: tuple[float, float]) -> Transport:
    """Return the optimal map between Σ = RᵀR from factors (m, d), m < d, as an update of the identity.

    With independent rows Rᵀ is itself a factor of full column rank, and only R₀ must be orthogonalised.
    """
    if 0 < len(R1) <= len(R0) and _independent(R1, tolerance[1]):
        Q, T = linalg.qr(R0.T, mode="economic", check_finite=False)
        if lapack.dtrcon(T)[0] > _ESTIMATE_SLACK * tolerance[0]:
            U, s, Vt = linalg.svd(R0 @ R1.T, full_matrices=False, check_finite=False)
            left = R1.T @ (Vt.T @ U.T) - R0.T
            right = lapack.dtrtrs(T, Q.T, lower=0)[0]
            return Transport(None, left, right, len(R0), len(R1), float(s.sum()))
    return transport_ranges(factor_range(R0, tolerance[0]), factor_range(R1, tolerance[1]), dense=False)


def _independent(R: Matrix, tolerance: float) -> bool:
    K = R @ R.T
    L = cholesky_or_none(K)
    # the Gram matrix squares the condition number; in doubtful cases the singular values decide
    return L is not None and condition_estimate(K, L) < min(1e10, (_ESTIMATE_SLACK * tolerance) ** -2)


def transport_ranges(source: Range, target: Range, *, dense: bool) -> Transport:
    """Return the optimal map between ranges; it is the identity on directions outside the source's range.

    With F = V diag(s), every W reaching Σ₁ satisfies W F₀ = F₁ Qᵀ, Q with orthonormal columns; the cheapest
    has Q the polar factor of F₀ᵀF₁. Where rank Σ₁ > rank Σ₀, F₁ keeps its leading rank(Σ₀) columns.
    """
    V0, s0, V1, s1 = source.basis, source.scale, target.basis, target.scale
    r0, r1 = len(s0), len(s1)
    reach = min(r0, r1)
    F1 = V1[:, :reach] * s1[:reach]
    U, fidelity, Vt = linalg.svd(s0[:, None] * (V0.T @ F1), full_matrices=False, check_finite=False)
    left = (F1 @ (Vt.T @ U.T)) / s0 - V0
    weight = None
    if dense:
        weight = left @ V0.T
        weight[np.diag_indices_from(weight)] += 1.0
    return Transport(
        weight,
        None if dense else left,
        None if dense else V0.T,
        r0,
        r1,
        float(fidelity.sum()),
        discarded=float(np.sqrt((s1[reach:] ** 4).sum())),
        discarded_trace=float((s1[reach:] ** 2).sum()),
    )
