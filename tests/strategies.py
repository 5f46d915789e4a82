"""Concept data with bounded condition numbers, so that tolerances can be tight and honest."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

EPS = float(np.finfo(np.float64).eps)
CONDITION = 1e3
"""Covariances drawn here have condition numbers of about this at most."""
EXACT = 1e-9
"""Relative slack of an identity on such data: d · EPS · CONDITION² with d ≤ 12 is 3e-9; seen are 1e-13."""


class Concept(NamedTuple):
    """Rows (n, d) and one label per row; class c occupies ``X[z == c]``."""

    X: np.ndarray
    z: np.ndarray

    def of(self, label):
        return self.X[self.z == label]


def covariance_root(rng, d, condition=CONDITION):
    """Return A (d, d) with cond(A Aᵀ) = condition."""
    U, _ = np.linalg.qr(rng.normal(size=(d, d)))
    V, _ = np.linalg.qr(rng.normal(size=(d, d)))
    return U @ np.diag(np.geomspace(1, condition**-0.5, d)) @ V


def make_concept(seed, *, d=6, rows=(60, 90), offset=0.0, scale=1.0, condition=CONDITION, dtype=np.float64):
    """Return Gaussian classes 0, 1, … of the given sizes, with their own means and covariances."""
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(n, d)) @ covariance_root(rng, d, condition) + rng.normal(size=d) + offset for n in rows]
    X = (scale * np.vstack(parts)).astype(dtype)
    z = np.repeat(np.arange(len(rows)), rows)
    order = rng.permutation(len(z))
    return Concept(X[order], z[order])


@st.composite
def concepts(draw, *, classes=2, max_d=8, min_rows=30, scales=(1e-3, 1.0, 1e3)):
    """Draw a `Concept` with more rows than dimensions in each class."""
    d = draw(st.integers(2, max_d))  # in one dimension two variances may be equal by accident
    rows = tuple(draw(st.integers(min_rows, 80)) for _ in range(classes))
    return make_concept(
        draw(st.integers(0, 2**32 - 1)),
        d=d,
        rows=rows,
        offset=draw(st.sampled_from([0.0, 5.0])),
        scale=draw(st.sampled_from(scales)),
    )


def cov(X):
    """Return the 1/n covariance (d, d), computed the plain way."""
    C = X - X.mean(axis=0)
    return C.T @ C / len(C)


def relative(A, B):
    """Return ‖A − B‖ / ‖B‖."""
    return float(np.linalg.norm(np.asarray(A) - B) / np.linalg.norm(B))
