"""Two Gaussian classes of known condition, and the float64 covariances by which answers are judged."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Classes", "covariance", "relative", "transport_error", "two_classes"]

Array = NDArray[np.floating]


class Classes(NamedTuple):
    """Rows ``X`` (n, d) in mixed order with labels ``z`` (n,), and the same rows class by class."""

    X: Array
    z: NDArray[np.int64]
    source: Array
    target: Array


def two_classes(n: int, d: int, *, condition: float, seed: int = 0, dtype: str = "float32") -> Classes:
    """Return ``n`` rows per class whose covariances have the given ``condition`` and different eigenvectors."""
    rng = np.random.default_rng(seed)
    scales = np.sqrt(np.geomspace(1.0, 1.0 / condition, d)).astype(dtype)
    X = np.empty((2 * n, d), dtype)
    z = rng.permutation(np.repeat([0, 1], n))
    for label in (0, 1):
        Q = np.linalg.qr(rng.standard_normal((d, d)))[0].astype(dtype)
        mean = (rng.standard_normal(d) * 0.3).astype(dtype)
        X[z == label] = (rng.standard_normal((n, d), dtype=dtype) * scales) @ Q.T + mean
    return Classes(X, z, X[z == 0], X[z == 1])


def covariance(X: Array) -> Array:
    """Return the 1/n covariance in float64 by two passes, independent of the code that is measured."""
    C = X.astype(np.float64)
    C -= C.mean(axis=0)
    return C.T @ C / len(C)


def relative(a: Array, b: Array) -> float:
    """Return ‖a − b‖ / ‖b‖ in the Frobenius norm."""
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def transport_error(W: Array, S0: Array, S1: Array) -> float:
    """Return the relative error of W S0 Wᵀ as an answer to S1; NaN where W is not finite."""
    W = np.asarray(W, dtype=np.float64)
    return relative(W @ S0 @ W.T, S1) if np.isfinite(W).all() else float("nan")
