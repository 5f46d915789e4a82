"""`CrossMoments`: moments of rows and of a continuous concept, with the scatter between the two."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from repsurgery.arrays import Matrix, check_groups, check_rows, check_weights, freeze, row_blocks
from repsurgery.cards import Card, Shown, count
from repsurgery.concepts import check_continuous
from repsurgery.errors import DataError, LabelError, ShapeError
from repsurgery.files import Contents, built_from, read_file, write_file
from repsurgery.moments.by_class import SINGLE, single_from_contents, single_to_contents
from repsurgery.moments.merge import gap_between
from repsurgery.moments.moments import Moments, Precision
from repsurgery.moments.shown import moments_card

__all__ = ["CrossMoments", "cross_from_contents", "cross_to_contents"]

KIND = "cross-moments"
SLACK = 1e-3
"""How far rounding of products in float32 may take a correlation beyond 1, with a wide margin."""


@dataclass(frozen=True, slots=True, eq=False)
class CrossMoments(Shown):
    """Sufficient statistics of rows with a concept of k numbers each: all that erasing the concept needs.

    ``a + b`` merges, ``a - b`` removes rows that were added, ``update`` returns the sum with new rows.

    Attributes
    ----------
    rows : Moments
        Of the rows, with d features.
    concept : Moments
        Of the concept, with k features.
    cross : (d, k) array
        Σ w (x − x̄)(z − z̄)ᵀ.

    Guarantees
    ----------
    Splitting, merging and removing rows changes nothing beyond rounding
    (test_cross_moments_merge_and_remove_exactly).
    """

    rows: Moments
    concept: Moments
    cross: Matrix

    def __post_init__(self) -> None:
        shape, counts = (self.rows.dim, self.concept.dim), (self.rows.count, self.concept.count)
        if self.cross.shape != shape or counts[0] != counts[1] or self.rows.weight != self.concept.weight:
            raise ShapeError(
                f"CrossMoments got a cross scatter {self.cross.shape} for {counts[0]} rows of {shape[0]} features and "
                f"{counts[1]} values of {shape[1]}; it needs shape {shape} and equal numbers of rows."
            )
        if not np.isfinite(self.cross).all() or (self.count and self._beyond()):
            raise DataError("A cross scatter is not finite, or exceeds its variances. Compute it again from rows.")
        object.__setattr__(self, "cross", freeze(self.cross))

    @classmethod
    def of(
        cls, X: Any, z: Any, *, sample_weight: Any = None, precision: Precision = "float64", groups: Any = None
    ) -> "CrossMoments":
        """Return the moments of rows ``X`` (n, d) with a concept ``z`` (n,) or (n, k).

        Weights, precision and groups are those of `Moments.of`.
        """
        caller = "CrossMoments.of"
        X = check_rows(X, caller=caller)
        Z = check_continuous(z, len(X), caller=caller)
        w, codes = check_weights(sample_weight, len(X), caller=caller), check_groups(groups, len(X), caller=caller)
        everything = np.arange(len(X))
        rows = Moments.of_rows(X, everything, w, precision, codes)
        concept = Moments.of_rows(Z, everything, w, "float64", codes)
        cross = np.zeros((X.shape[1], Z.shape[1]))
        for block in row_blocks(*X.shape):
            weighted = Z[block] - concept.mean if w is None else w[block, None] * (Z[block] - concept.mean)
            cross += np.subtract(X[block], rows.mean, dtype=np.float64).T @ weighted
        return cls(rows, concept, cross)

    def _beyond(self) -> bool:
        """Return whether some correlation is beyond 1."""
        x, z = (np.sqrt(np.maximum(m.variance, 0.0)) for m in (self.rows, self.concept))
        return bool((np.abs(self.covariance) > np.outer(x, z) * (1 + SLACK) + np.finfo(np.float64).tiny).any())

    @property
    def dim(self) -> int:
        """The number of features d of the rows."""
        return self.rows.dim

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.rows.count

    @property
    def covariance(self) -> Matrix:
        """The 1/n covariance between rows and concept, shape (d, k)."""
        return self.cross / self.rows.weight

    def standardised(self) -> Matrix:
        """Return the covariance (d, k) with each column of the concept divided by its standard deviation.

        A column without spread raises a `LabelError`.
        """
        spread = np.sqrt(np.maximum(self.concept.variance, 0.0))
        scale = np.abs(self.concept.mean)
        constant = np.flatnonzero(spread <= 8 * np.finfo(np.float64).eps * scale)
        if len(constant):
            raise LabelError(
                f"Column {constant[0]} of the concept is {self.concept.mean[constant[0]]:g} in every row; a concept "
                "needs at least two values. Drop the column, or add rows with other values."
            )
        return self.covariance / spread

    def update(
        self, X: Any, z: Any, *, sample_weight: Any = None, precision: Precision | None = None, groups: Any = None
    ) -> "CrossMoments":
        """Return these moments with new rows added; ``self`` does not change."""
        options = {"sample_weight": sample_weight, "precision": precision or self.rows.precision, "groups": groups}
        return self + CrossMoments.of(X, z, **options)

    def __add__(self, other: "CrossMoments") -> "CrossMoments":
        if not isinstance(other, CrossMoments):
            return NotImplemented
        if not (self.count and other.count):
            return self if self.count else other
        cross = self.cross + other.cross + _moved(self, other)
        return CrossMoments(self.rows + other.rows, self.concept + other.concept, cross)

    def __sub__(self, other: "CrossMoments") -> "CrossMoments":
        """Remove rows that were added before."""
        if not isinstance(other, CrossMoments):
            return NotImplemented
        rows, concept = self.rows - other.rows, self.concept - other.concept
        left = CrossMoments(rows, concept, np.zeros_like(self.cross))
        if not rows.count or not other.count:
            return left if not rows.count else self
        return CrossMoments(rows, concept, self.cross - other.cross - _moved(left, other))

    def _card(self) -> Card:
        title = (
            f"Moments of {count(self.count, 'row')} with {count(self.dim, 'feature')} and a continuous concept of "
            f"{count(self.concept.dim, 'column')}"
        )
        return Card(title, facts=moments_card(self.rows).facts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write these moments to one file; they hold no rows."""
        write_file(path, cross_to_contents(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "CrossMoments":
        """Read moments written by `save`, checking digest, shapes and values."""
        return cross_from_contents(read_file(path, kind=KIND))


def _moved(a: CrossMoments, b: CrossMoments) -> Matrix:
    """Return the cross scatter of the two means about their common mean."""
    gaps = gap_between(a.rows.centre, b.rows.centre), gap_between(a.concept.centre, b.concept.centre)
    moved: Matrix = np.outer(*gaps) * (a.rows.weight * b.rows.weight / (a.rows.weight + b.rows.weight))
    return moved


def cross_to_contents(moments: CrossMoments) -> Contents:
    """Return the file form of ``moments``."""
    parts = {name: single_to_contents(getattr(moments, name)) for name in ("rows", "concept")}
    arrays = {f"{name}.{key}": array for name, part in parts.items() for key, array in part.arrays.items()}
    return Contents(KIND, {name: dict(part.header) for name, part in parts.items()}, {**arrays, "cross": moments.cross})


def cross_from_contents(contents: Contents) -> CrossMoments:
    """Return the moments from the contents of a file, after checking them."""
    with built_from("cross moments"):
        parts = []
        for name in ("rows", "concept"):
            arrays = {k.removeprefix(f"{name}."): a for k, a in contents.arrays.items() if k.startswith(f"{name}.")}
            parts.append(single_from_contents(Contents(SINGLE, contents.header[name], arrays)))
        return CrossMoments(parts[0], parts[1], np.asarray(contents.arrays["cross"], dtype=np.float64))
