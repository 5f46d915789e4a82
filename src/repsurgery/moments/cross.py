"""`CrossMoments`: moments of rows and of a continuous concept, with the scatter between the two."""

import hashlib
import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Matrix, Rows, Vector, check_groups, check_rows, check_weights, freeze, row_blocks
from repsurgery.cards import Card, Shown, count
from repsurgery.concepts import check_continuous
from repsurgery.errors import DataError, LabelError, ShapeError, SketchError
from repsurgery.files import Contents, built_from, read_file, write_file
from repsurgery.moments.by_class import SINGLE, single_from_contents, single_to_contents
from repsurgery.moments.checks import require_same_width
from repsurgery.moments.combine import added, warn_of_repetition
from repsurgery.moments.ledger import Ledger, Part
from repsurgery.moments.merge import REMOVAL_TOLERANCE, gap_between
from repsurgery.moments.moments import Moments, Precision
from repsurgery.moments.shown import moments_card
from repsurgery.moments.sketch import DIRECTIONS, TOLERANCES, directions

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
    joint : (d + 4, 4) array, or None
        An independent count of the same: Σ w (x − x̄)(uᵀ(z − z̄)) of every column and direction of the rows, along the
        directions u of the concept. It belongs to the sketches of rows and concept; None where those are None.

    Guarantees
    ----------
    Splitting, merging and removing rows changes nothing beyond rounding
    (test_cross_moments_merge_and_remove_exactly).
    """

    rows: Moments
    concept: Moments
    cross: Matrix
    joint: Matrix | None = None

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
        if self.joint is not None:
            wanted = (self.rows.dim + DIRECTIONS, DIRECTIONS)
            if self.rows.sketch is None or self.concept.sketch is None or np.shape(self.joint) != wanted:
                raise ShapeError(
                    f"The joint sketch has shape {np.shape(self.joint)}; it needs {wanted}, and the sketches of rows "
                    "and concept. It was truncated or altered; count the rows again."
                )
            object.__setattr__(self, "joint", freeze(np.asarray(self.joint, dtype=np.float64)))

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
        counted = np.arange(len(X)) if w is None else np.flatnonzero(w > 0)
        rows = Moments.of_rows(X, counted, w, precision, codes)
        # the ledger of the rows names the parts, of which the concept belongs to the content
        concept = replace(Moments.of_rows(Z, counted, w, "float64", codes), ledger=None)
        assert rows.sketch is not None and concept.sketch is not None
        cross = _products(X, Z, counted, w, (rows.mean, concept.mean))
        along = directions(X.shape[1]), directions(Z.shape[1])
        joint = _products(X, Z, counted, w, (rows.sketch.mean, concept.sketch.mean), along=along)
        if rows.count:
            content = "|".join((rows.sketch.digest(), concept.sketch.digest(), joint.tobytes().hex()))
            part = Part(hashlib.sha256(content.encode()).hexdigest()[:32], rows.count, float(rows.weight))
            rows = replace(rows, ledger=Ledger((part,)))
        moments = cls(rows, concept, cross, joint)
        moments.check_sketch()
        return moments

    def check_sketch(self) -> None:
        """Raise `SketchError` where these moments are not what was counted beside them; see `Moments.check_sketch`."""
        self.rows.check_sketch()
        self.concept.check_sketch()
        x, z = self.rows.sketch, self.concept.sketch
        if x is None and z is None and self.joint is None:
            return
        if x is None or z is None or self.joint is None:
            raise SketchError(
                "Rows and concept carry sketches, and the joint sketch is missing, or only one of them carries its "
                "own: a part was taken away. Count the rows again, or load the original file."
            )
        V, U = directions(self.dim), directions(self.concept.dim)
        along = self.cross @ U
        gap = np.abs(np.vstack([along, V.T @ along]) - self.joint)
        sizes = np.concatenate([x.bound, np.square(V).T @ x.bound])
        allowed = TOLERANCES[self.rows.precision] * np.sqrt(np.outer(sizes, np.square(U).T @ z.bound))
        if not (gap <= allowed + np.finfo(np.float64).tiny).all():
            j = int(np.argmax((gap - allowed).max(axis=1)))
            where = f"of column {j}" if j < self.dim else f"along direction {j - self.dim + 1}"
            raise SketchError(
                f"The cross scatter disagrees with the sketch that was counted beside it: {where} it differs by "
                f"{gap[j].max():.3g}, where {allowed[j].max():.1g} is rounding. Count the rows again; if that does not "
                "help, report an error in repsurgery."
            )

    def _beyond(self) -> bool:
        """Return whether some correlation is beyond 1."""
        return bool((np.abs(self.cross) > _sizes(self) * (1 + SLACK) + np.finfo(np.float64).tiny).any())

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
        _require_same_widths(self, other)
        if not (self.count and other.count):
            return self if self.count else other
        warn_of_repetition(self.rows, other.rows)
        cross = self.cross + other.cross + _moved(self, other)
        rows, concept = added(self.rows, other.rows), added(self.concept, other.concept)
        return CrossMoments(rows, concept, cross, _added_joint(self, other))

    def __sub__(self, other: "CrossMoments") -> "CrossMoments":
        """Remove rows that were added before."""
        if not isinstance(other, CrossMoments):
            return NotImplemented
        _require_same_widths(self, other)
        rows, concept = self.rows - other.rows, self.concept - other.concept
        nothing = None if self.joint is None or other.joint is None else np.zeros_like(self.joint)
        left = CrossMoments(rows, concept, np.zeros_like(self.cross), nothing)
        if not rows.count or not other.count:
            return left if not rows.count else self
        cross = _within(self.cross - other.cross - _moved(left, other), left, self)
        return CrossMoments(rows, concept, cross, _removed_joint(self, other, rows.weight))

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


def _require_same_widths(a: CrossMoments, b: CrossMoments) -> None:
    require_same_width(a.rows, b.rows)
    if a.concept.dim != b.concept.dim:
        raise ShapeError(
            f"Concepts of {a.concept.dim} and of {b.concept.dim} columns cannot be combined; use one concept for both."
        )


def _moved(a: CrossMoments, b: CrossMoments) -> Matrix:
    """Return the cross scatter of the two means about their common mean."""
    gaps = gap_between(a.rows.centre, b.rows.centre), gap_between(a.concept.centre, b.concept.centre)
    moved: Matrix = np.outer(*gaps) * (a.rows.weight * b.rows.weight / (a.rows.weight + b.rows.weight))
    return moved


def _within(cross: Matrix, left: CrossMoments, former: CrossMoments) -> Matrix:
    """Return what a removal leaves, where rounding of the former moments took a correlation beyond 1 with it at 1."""
    most, added = _sizes(left), REMOVAL_TOLERANCE[former.rows.precision] * _sizes(former)
    return np.where(np.abs(cross) <= most + added, np.clip(cross, -most, most), cross)


def _sizes(m: CrossMoments) -> Matrix:
    """Return the largest cross scatter (d, k) that the variances allow."""
    x, z = (np.sqrt(np.maximum(part.variance, 0.0) * part.weight) for part in (m.rows, m.concept))
    return np.outer(x, z)


def _products(
    X: Rows,
    Z: Matrix,
    rows: NDArray[np.intp],
    w: Vector | None,
    centres: tuple[Vector, Vector],
    *,
    along: tuple[Matrix, Matrix] | None = None,
) -> Matrix:
    """Return Σ w (x − x̄)(z − z̄)ᵀ of the rows with these indices.

    ``along`` are directions of both: then the result has every column of X and each of its directions as rows, and the
    directions of Z as columns. ``centres`` are the means up to rounding, and what rounding took from them is corrected.
    """
    d = X.shape[1]
    V, U = (np.empty((d, 0)), np.eye(Z.shape[1])) if along is None else along
    weight, total = 0.0, np.zeros(U.shape[1])
    products = np.zeros((d + V.shape[1], U.shape[1] + 1))
    for block in row_blocks(len(rows), d):
        i = rows[block]
        weights = np.ones(len(i)) if w is None else w[i]
        x = np.subtract(X[i], centres[0], dtype=np.float64)
        z = weights[:, None] * ((Z[i] - centres[1]) @ U)
        weighted = np.column_stack([z, weights])  # the last column gives the sums of the rows
        products[:d] += x.T @ weighted
        products[d:] += (x @ V).T @ weighted
        total += z.sum(axis=0)
        weight += float(weights.sum())
    corrected: Matrix = products[:, :-1] - np.outer(products[:, -1], total / max(weight, 1e-300))
    return corrected


def _added_joint(a: CrossMoments, b: CrossMoments) -> Matrix | None:
    if a.joint is None or b.joint is None:
        return None
    share = a.rows.weight * b.rows.weight / (a.rows.weight + b.rows.weight)
    return a.joint + b.joint + share * _gaps(a, b)


def _removed_joint(a: CrossMoments, b: CrossMoments, weight: float) -> Matrix | None:
    if a.joint is None or b.joint is None:
        return None
    # the means of what remains and of what is removed are further apart than those of a and b, by w_a / w
    return a.joint - b.joint - (a.rows.weight * b.rows.weight / weight) * _gaps(a, b)


def _gaps(a: CrossMoments, b: CrossMoments) -> Matrix:
    """Return the products of the gaps of the sketched means, of every column and direction."""
    gaps = []
    for one, other in ((a.rows.sketch, b.rows.sketch), (a.concept.sketch, b.concept.sketch)):
        assert one is not None and other is not None
        gaps.append((other.mean - one.mean) + (other.residue - one.residue))
    x, z = gaps
    return np.outer(np.concatenate([x, x @ directions(len(x))]), z @ directions(len(z)))


def cross_to_contents(moments: CrossMoments) -> Contents:
    """Return the file form of ``moments``."""
    parts = {name: single_to_contents(getattr(moments, name)) for name in ("rows", "concept")}
    arrays = {f"{name}.{key}": array for name, part in parts.items() for key, array in part.arrays.items()}
    arrays["cross"] = moments.cross
    if moments.joint is not None:
        arrays["joint"] = moments.joint
    return Contents(KIND, {name: dict(part.header) for name, part in parts.items()}, arrays)


def cross_from_contents(contents: Contents) -> CrossMoments:
    """Return the moments from the contents of a file, after checking them."""
    with built_from("cross moments"):
        parts = []
        for name in ("rows", "concept"):
            arrays = {k.removeprefix(f"{name}."): a for k, a in contents.arrays.items() if k.startswith(f"{name}.")}
            parts.append(single_from_contents(Contents(SINGLE, contents.header[name], arrays)))
        cross = np.asarray(contents.arrays["cross"], dtype=np.float64)
        moments = CrossMoments(parts[0], parts[1], cross, contents.arrays.get("joint"))
        moments.check_sketch()
        return moments
