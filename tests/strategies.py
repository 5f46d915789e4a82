"""Concepts with bounded condition numbers, whose tolerances are tight, and rows with the structure of real ones."""

from typing import NamedTuple

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

EPS = float(np.finfo(np.float64).eps)
CONDITION = 1e3
"""Covariances drawn here have condition numbers of about this at most."""
EXACT = 1e-9
"""Relative slack of an identity on such data: d · EPS · CONDITION² with d ≤ 12 is 3e-9; seen are 1e-13."""


def share(part):
    """Return settings with a share of the examples, for slow properties and for properties of every estimator."""
    return settings(max_examples=max(int(settings().max_examples * part), 1))


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


def _normal(rng, n):
    return rng.normal(size=n)


COLUMNS = {
    "zero": lambda rng, n: np.zeros(n),
    "constant": lambda rng, n: np.full(n, rng.choice([5.0, -0.3, 1e6, 2.0**-40])),
    "nearly constant": lambda rng, n: 1.0 + 1e-9 * rng.normal(size=n),
    "sparse": lambda rng, n: np.maximum(rng.normal(size=n) - 1.0, 0.0),
    "counts": lambda rng, n: rng.poisson(0.4, size=n).astype(float),
    "tied": lambda rng, n: rng.choice([-1.5, 0.1, 0.1, 7.0], size=n),
    "one row": lambda rng, n: np.eye(n)[int(rng.integers(n))] * 3.0,
    "tiny": lambda rng, n: 1e-12 * rng.normal(size=n),
    "huge": lambda rng, n: 1e8 * rng.normal(size=n),
    "far": lambda rng, n: 1e6 + rng.normal(size=n),
    "normal": _normal,
}
"""Columns as real vectors have them: dead and constant units, ReLU states, word counts, ties, and scales far apart."""
DEPENDENT = {
    "same": lambda rng, column, other: column,
    "negative": lambda rng, column, other: -column,
    "double": lambda rng, column, other: 2.0 * column,
    "sum": lambda rng, column, other: column + other,
}
"""Columns that follow from two earlier ones."""


class Structured(NamedTuple):
    """Rows (n, d) with classes (n,), weights (n,) or None, groups (n,) or None, and the kinds of its columns."""

    X: np.ndarray
    z: np.ndarray
    w: np.ndarray | None
    groups: np.ndarray | None
    kinds: tuple[str, ...]

    def of(self, label):
        """Return the rows of a class and their weights."""
        mine = self.z == label
        return self.X[mine], None if self.w is None else self.w[mine]


def structured(seed, n, kinds, *, dtype=np.float64, repeat=False):
    """Return rows (n, d) whose columns are of the given kinds; with ``repeat``, some rows occur more than once.

    Integer rows are these, cut off at the point, so that columns of small numbers become sparse or zero.
    """
    rng = np.random.default_rng(seed)
    columns = []
    for kind in kinds:
        if kind in COLUMNS or not columns:
            columns.append(COLUMNS.get(kind, _normal)(rng, n))
        else:
            pair = [columns[int(rng.integers(len(columns)))] for _ in range(2)]
            columns.append(DEPENDENT[kind](rng, *pair))
    X = np.stack(columns, axis=1)
    if repeat:
        X = X[rng.integers(n, size=n)]
    return X.astype(dtype)


@st.composite
def structured_rows(
    draw,
    *,
    classes=1,
    min_rows=1,
    max_rows=30,
    max_d=10,
    dtypes=(np.float64, np.float32, np.int64),
    weighted=True,
    grouped=True,
    kinds=(*COLUMNS, *DEPENDENT),
):
    """Draw `Structured` rows, with fewer or more rows than columns, and classes of very different size.

    Every class has at least ``min_rows`` rows of positive weight. A group may span classes. The largest class may be
    any of them.
    """
    kinds = tuple(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=max_d)))
    largest = draw(st.integers(0, classes - 1))
    few = max(min_rows, max_rows // 4)
    sizes = [draw(st.integers(min_rows, max_rows if c == largest else few)) for c in range(classes)]
    n, seed = sum(sizes), draw(st.integers(0, 2**32 - 1))
    X = structured(seed, n, kinds, dtype=draw(st.sampled_from(dtypes)), repeat=draw(st.booleans()))
    rng = np.random.default_rng(seed)
    z = rng.permutation(np.repeat(np.arange(classes), sizes))
    if classes > 1 and draw(st.booleans()):
        X = X + z[:, None].astype(X.dtype)  # the classes are apart, and a constant column differs between them
    w = groups = None
    if weighted and draw(st.booleans()):
        w = rng.choice([0.0, 0.25, 1.0, 1.0, 3.0, 1e3], size=n)
        for c in range(classes):
            w[np.flatnonzero(z == c)[:min_rows]] = 1.0
    if grouped and draw(st.booleans()):
        groups = rng.integers(max(n // 3, 1), size=n)
        if not draw(st.booleans()):
            groups = z * n + groups  # no group spans classes
    return Structured(X, z, w, groups, kinds)
