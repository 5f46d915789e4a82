"""Numerical ranks, condition numbers and helpers for symmetric matrices."""

import numpy as np
from scipy.linalg import lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh, svds

from repsurgery.arrays import Matrix, Vector

__all__ = [
    "cholesky_or_none",
    "condition_estimate",
    "fortran",
    "largest_singular_value",
    "mirror_upper",
    "rank_tolerance",
    "symmetric_rank",
]

_FLOAT32_RANK_TOLERANCE = 8 * float(np.finfo(np.float32).eps)


def rank_tolerance(dtype: str, dim: int, *, from_scatter: bool) -> float:
    """Return the singular value, relative to the largest, below which a direction counts as absent from the data.

    Rounding the input to ``dtype`` alone creates singular values of about eps(dtype); a factor computed
    in float64 adds d·eps; a scatter matrix holds squares, hence √(d·eps) on the singular values.
    Half-precision input is judged as float32: its coarser rounding is part of the data.
    """
    eps = float(np.finfo(np.float64).eps)
    arithmetic = np.sqrt(dim * eps) if from_scatter else dim * eps
    rounding = 0.0 if dtype == "float64" else _FLOAT32_RANK_TOLERANCE
    return float(max(arithmetic, rounding))


def symmetric_rank(eigenvalues: Vector, tolerance: float) -> int:
    """Count eigenvalues whose square root exceeds ``tolerance`` times the largest one's."""
    top = eigenvalues.max(initial=0.0)
    return int((eigenvalues > tolerance**2 * top).sum()) if top > 0 else 0


def mirror_upper(S: Matrix, *, block: int = 256) -> Matrix:
    """Copy the upper triangle of ``S`` onto its lower one, in place and without a second matrix."""
    d = S.shape[0]
    for start in range(0, d, block):
        stop = min(start + block, d)
        S[stop:, start:stop] = S[start:stop, stop:].T
        corner = S[start:stop, start:stop]
        lower = np.tril_indices(stop - start, -1)
        corner[lower] = corner.T[lower]
    return S


def fortran(S: Matrix) -> Matrix:
    """Return a symmetric matrix in Fortran order, which LAPACK reads and overwrites without a copy."""
    return S if S.flags.f_contiguous else S.T


def cholesky_or_none(S: Matrix, *, overwrite: bool = False) -> Matrix | None:
    """Return upper triangular R with Rᵀ R = S, or None where S is not numerically positive definite."""
    R, info = lapack.dpotrf(fortran(S), lower=0, clean=1, overwrite_a=overwrite)
    return R if info == 0 and np.isfinite(np.diagonal(R)).all() else None


def condition_estimate(S: Matrix, R: Matrix) -> float:
    """Estimate the 1-norm condition number of S from its Cholesky factor R at O(d²) cost."""
    rcond, _ = lapack.dpocon(R, np.abs(S).sum(axis=0).max(initial=0.0), uplo="U")
    return float(1 / rcond) if rcond > 0 else float("inf")


def largest_singular_value(W: Matrix | LinearOperator) -> float:
    """Return ‖W‖₂ to four digits by Lanczos, from a fixed start vector so that the result is deterministic."""
    d = min(W.shape)
    if isinstance(W, np.ndarray) and d <= 64:
        return float(np.linalg.norm(W, 2))
    start = np.random.default_rng(0).standard_normal(d)
    size = float(np.abs(W @ start).max(initial=0.0))
    if not 1e-50 < size < 1e50:  # Lanczos squares; dividing by a power of two rescales without rounding
        if size == 0 or not np.isfinite(size):
            return size
        unit = float(np.exp2(np.round(np.log2(size))))
        return unit * largest_singular_value(W * (1 / unit))
    try:
        if isinstance(W, np.ndarray) and _symmetric_along(W, start):  # half the products
            return float(abs(eigsh(W, k=1, v0=start, tol=1e-4, return_eigenvectors=False)[0]))
        return float(svds(W, k=1, v0=start, tol=1e-4, return_singular_vectors=False)[0])
    except ArpackNoConvergence:
        dense = W if isinstance(W, np.ndarray) else W @ np.eye(W.shape[1])
        return float(np.linalg.norm(dense, 2))


def _symmetric_along(W: Matrix, v: Vector) -> bool:
    """Return whether W v and Wᵀ v agree to nine digits, whatever the scale of W."""
    ahead, back = W @ v, v @ W
    return float(np.abs(ahead - back).max()) <= 1e-9 * float(np.abs(ahead).max())
