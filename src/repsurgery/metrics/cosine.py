"""Cosine similarities of a sample, ordered by class."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Label, Matrix, check_integer, check_labels, check_rows, freeze, require_finite
from repsurgery.metrics.neighbours import unit_rows

__all__ = ["CosineBlocks", "cosine_blocks"]


@dataclass(frozen=True, slots=True, eq=False)
class CosineBlocks:
    """Cosine similarities of m sampled rows, ordered by class.

    Attributes
    ----------
    similarity : (m, m) float32 array
    rows : (m,) array
        Their indices in ``X``.
    classes : tuple of labels
    counts : tuple of int
        Sampled rows per class, which determine the borders of the blocks.
    means : (k, k) array
        Mean similarity of each pair of classes, without pairs of a row with itself; NaN within a class of one row.
    within, between : float
        Mean similarity over all pairs of different rows of the same class, and of different classes.
    """

    similarity: NDArray[np.float32]
    rows: NDArray[np.intp]
    classes: tuple[Label, ...]
    counts: tuple[int, ...]
    means: Matrix
    within: float
    between: float

    def __post_init__(self) -> None:
        for name in ("similarity", "rows", "means"):
            object.__setattr__(self, name, freeze(getattr(self, name)))


def cosine_blocks(X: Any, concept: Any, per_class: int = 2000, seed: int = 0) -> CosineBlocks:
    """Return the cosine similarities of up to ``per_class`` rows of each class, drawn without replacement.

    Parameters
    ----------
    X : (n, d) array
    concept : (n,) labels
    per_class : int
        The result holds (k · per_class)² numbers.
    seed : int
        The sample depends on ``concept``, ``per_class`` and ``seed`` alone, so that representations of the same rows
        are comparable.

    Examples
    --------
    >>> from repsurgery.metrics import cosine_blocks
    >>> blocks = cosine_blocks([[0.0, 1.0], [1.0, 0.0], [3.0, 0.0]], ["m", "f", "f"])
    >>> blocks.classes, blocks.rows.tolist(), blocks.within, blocks.between
    (('f', 'm'), [1, 2, 0], 1.0, 0.0)
    """
    check_integer("per_class", per_class)
    X = check_rows(X, caller="cosine_blocks")
    labels, codes = check_labels(concept, len(X), caller="cosine_blocks")
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(codes == code) for code in range(len(labels))]
    drawn = [np.sort(rng.choice(rows, min(per_class, len(rows)), replace=False)) for rows in members]
    rows = np.concatenate(drawn)
    require_finite(X[rows], caller="cosine_blocks")
    U = unit_rows(X[rows])
    S = np.clip(U @ U.T, -1.0, 1.0)
    counts = np.array([len(part) for part in drawn])
    sums = _block_sums(S, counts)
    pairs = np.outer(counts, counts) - np.diag(counts)
    inside = np.eye(len(labels), dtype=bool)
    return CosineBlocks(
        similarity=S,
        rows=rows,
        classes=tuple(labels),
        counts=tuple(counts.tolist()),
        means=np.divide(sums, pairs, out=np.full(sums.shape, np.nan), where=pairs > 0),
        within=_mean(sums[inside], pairs[inside]),
        between=_mean(sums[~inside], pairs[~inside]),
    )


def _block_sums(S: NDArray[np.float32], counts: NDArray[np.intp]) -> Matrix:
    """Return the (k, k) sums of the blocks, without the diagonal of S."""
    starts = np.cumsum(counts) - counts
    by_column = np.add.reduceat(S, starts, axis=1, dtype=np.float64)
    selves = np.add.reduceat(np.diagonal(S), starts, dtype=np.float64)
    sums: Matrix = np.add.reduceat(by_column, starts, axis=0) - np.diag(selves)
    return sums


def _mean(sums: Matrix, pairs: NDArray[np.intp]) -> float:
    total = pairs.sum()
    return float(sums.sum() / total) if total else float("nan")
