"""LEACE: erase a concept from every vector, as cheaply as any affine map can."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from repsurgery.affine import AffineMap, LowRank
from repsurgery.arrays import Label, Mask, Matrix, Rows, check_groups, check_integer, check_weights
from repsurgery.certificates.certificate import Claim, Population
from repsurgery.certificates.continuous import HeldOutColumns, issue_continuous
from repsurgery.certificates.from_moments import Method, Solution, pushforward
from repsurgery.certificates.on_rows import columns_on_rows
from repsurgery.concepts import check_concept_type, check_continuous
from repsurgery.gates import AlwaysGate
from repsurgery.linalg.transport import Range
from repsurgery.linalg.whitening import Whitening, by_range, whitening_of, whitening_of_factor
from repsurgery.moments import ClassMoments, CrossMoments, Moments
from repsurgery.moments.moments import Precision
from repsurgery.moments.pooled import whitening
from repsurgery.moments.shrinkage import NO_SHRINKAGE, FitRows, Shrinkage, check_shrinkage, shrink, shrunk_covariance
from repsurgery.steering.advice import warn_of_gain, warn_of_what_is_left
from repsurgery.steering.base import METHODS, BaseSteering
from repsurgery.steering.function import EVERYBODY, SteeringFunction
from repsurgery.steering.held_out import held_out_columns, warn_of_held_out

__all__ = ["LEACE"]


@METHODS.register("leace")
class LEACE(BaseSteering):
    """Make all class means coincide, so that no convex-loss linear probe can read the concept.

    g(h) = h − Σ^½ P Σ^-½ (h − μ), with P the orthogonal projector on the whitened class-mean differences
    (Belrose et al. 2023). One map for every vector; no labels are needed to apply it.

    A continuous concept, such as a rating, has no classes: P projects on its whitened covariance with the vectors, and
    afterwards no affine probe predicts it better in squared loss than its mean does.

    Parameters
    ----------
    concept_type : {"classes", "continuous"}
        Whether the concept is a label of each row, or one or more numbers: (n,) or (n, k). Numbers are never taken as
        continuous unless this says so; `quantile_bins` makes classes of them instead.
    shrinkage : {"none", "ridge", "relative-ridge", "oas", "ledoit-wolf"}
        How the total covariance is regularised before it is inverted. Erasure stays exact; only its cost grows.
    ridge : float
        The size of the ridge, where the shrinkage has one.
    precision : {"float64", "float32-products"}
        How moments are accumulated.
    folds : int or None
        See `MeanMatching`.

    Attributes
    ----------
    map_ : LowRank
        Differs from the identity by rank k − 1 at most; for a continuous concept of k columns, by rank k.
    certificate_ : Certificate or ContinuousCertificate
        ``cost`` is over all rows.
    moments_ : ClassMoments or CrossMoments

    Guarantees
    ----------
    All class means coincide afterwards, for any number of classes of any label type and any frequency
    (test_leace_equalises_class_means, test_integer_labels_of_four_classes_are_erased,
    test_fifteen_rows_in_two_hundred_thousand_are_erased).
    The overall mean does not move and the map is idempotent (test_leace_is_a_projection_that_keeps_the_mean).
    No affine map that equalises the means is cheaper (test_cost_attains_the_stated_optimum).
    A continuous concept has no covariance with the erased vectors, and the map is that of the authors' own library
    (test_a_continuous_concept_is_erased_as_the_authors_erase_it).

    Examples
    --------
    >>> import numpy as np, repsurgery as rs
    >>> X, z = np.array([[0.0, 1.0], [1.0, 0.0], [4.0, 1.0], [5.0, 0.0]]), [0, 0, 1, 1]
    >>> erased = rs.LEACE().fit(X, z).transform(X)
    >>> bool(np.allclose(erased[:2].mean(axis=0), erased[2:].mean(axis=0)))
    True
    >>> rated = rs.LEACE(concept_type="continuous").fit(X, [1.5, 2.0, 3.5, 4.5])
    >>> rated.certificate_.r2_after
    (0.0,)
    """

    claims: ClassVar[tuple[Claim, ...]] = ("means",)
    population: ClassVar[Population] = "all"

    def __init__(
        self,
        *,
        concept_type: str = "classes",
        shrinkage: str = "none",
        ridge: float = 1e-5,
        precision: Precision = "float64",
        folds: int | None = None,
    ) -> None:
        self.concept_type = concept_type
        self.shrinkage = shrinkage
        self.ridge = ridge
        self.precision = precision
        self.folds = folds

    def _solve(self, moments: ClassMoments, rows: FitRows | None) -> tuple[Method, dict[Label | None, Solution]]:
        total = moments.total
        # the gaps, weighted, sum to zero: that of the heaviest class follows from the others, without losing digits
        heaviest = max(moments, key=lambda label: moments[label].weight)
        gaps = np.stack([m.mean - total.mean for label, m in moments.items() if label != heaviest], axis=1)
        return self._method(), {EVERYBODY: self._erasing(gaps, total, rows)}

    def _erasing(self, gaps: Matrix, total: Moments, rows: FitRows | None) -> Solution:
        """Return the cheapest map after which no direction of ``gaps`` (d, k) is left."""
        s = shrink(self.shrinkage, self.ridge, total, rows)
        left, right = erasing_directions(gaps, total, whiten(total, s))
        warn_of_what_is_left(gaps - left @ (right @ gaps), total)
        m = LowRank(-left, right, left @ (right @ total.mean))
        return Solution(m, float(np.square(left).sum()))

    def _kind_of_moments(self) -> type[ClassMoments] | type[CrossMoments]:
        check_concept_type(self.concept_type)
        return CrossMoments if self.concept_type == "continuous" else ClassMoments

    def _count(self, X: Rows, z: Any, sample_weight: Any, groups: Any) -> tuple[Any, FitRows]:
        if self._kind_of_moments() is ClassMoments:
            return super()._count(X, z, sample_weight, groups)
        moments = CrossMoments.of(X, z, sample_weight=sample_weight, precision=self.precision, groups=groups)
        weights = check_weights(sample_weight, len(X), caller="LEACE")
        codes = check_groups(groups, len(X), caller="LEACE")
        rows = FitRows(X, np.zeros(len(X), dtype=np.intp), [0], weights, codes)
        rows.concept = check_continuous(z, len(X), caller="LEACE")
        return moments, rows

    def _steering_for(self, moments: ClassMoments | CrossMoments, rows: FitRows | None) -> SteeringFunction:
        if isinstance(moments, ClassMoments):
            return super()._steering_for(moments, rows)
        check_shrinkage(self.shrinkage, self.ridge)
        moments.check_sketch()
        for part in (moments.rows, moments.concept):
            part.require_scale()
        solution = self._erasing(moments.standardised(), moments.rows, rows)
        certificate = issue_continuous(self._method(), moments, solution.map, solution.optimal_cost)
        if rows is not None and rows.concept is not None:
            certificate = columns_on_rows(certificate, solution.map, rows.X, rows.concept, rows.weights)
            certificate = replace(certificate, held_out=self._held_out_columns(moments, solution.map, rows))
        warn_of_held_out(certificate)
        warn_of_gain(certificate.method, certificate.gain, "'oas'", lambda: moments.rows)
        return SteeringFunction({EVERYBODY: solution.map}, AlwaysGate()).sealed(certificate)

    def _held_out_columns(self, moments: CrossMoments, m: AffineMap, rows: FitRows) -> HeldOutColumns | None:
        """Return what is left of each column on rows left out, where ``folds`` asks for it."""
        if self.folds is None:
            return None
        Z = rows.concept
        assert Z is not None

        def map_without(fold: Any, f: int) -> AffineMap:
            some = rows.subset(fold != f)
            others = CrossMoments.of(
                some.X, Z[fold != f], sample_weight=some.weights, precision=self.precision, groups=some.groups
            )
            return self._erasing(others.standardised(), others.rows, some).map

        whitenings = whitening(moments.rows), whitening(pushforward(moments.rows, m)[0])
        return held_out_columns(rows, Z, check_integer("folds", self.folds, least=2), map_without, whitenings)

    @property
    def classes_(self) -> np.ndarray:
        """The concept labels, sorted; a continuous concept has none."""
        if isinstance(getattr(self, "moments_", None), CrossMoments):
            raise AttributeError("A continuous concept has no classes.")
        return super().classes_


def whiten(m: Moments, s: Shrinkage) -> Whitening:
    """Return the whitening of the (shrunk) covariance of ``m``; factors are never squared."""
    if m.factor is not None and m.count < m.dim:
        if s == NO_SHRINKAGE:
            return whitening_of_factor(m.root(), m.rank_tolerance, m.least_spread(), m.rounding)
        span = m.range()
        return by_range(Range(span.basis, np.sqrt(s.keep * span.scale**2 + s.floor)))
    return whitening_of(shrunk_covariance(m, s), m.rank_tolerance, m.least_spread(), m.rounding)


def erasing_directions(gaps: Any, total: Moments, whitening: Whitening) -> tuple[Any, Any]:
    """Return left (d, r), right (r, d) with right @ left = I and left spanning the ``gaps`` (d, k).

    ``left`` is a combination of the gaps and ``right`` is rescaled to it, so that W = I − left @ right annihilates
    them to the last bit for every condition number of Σ. A gap within rounding of the means counts as zero.
    """
    U, s, Vt = linalg.svd(whitening.apply(gaps), full_matrices=False, check_finite=False)
    found = s > total.dim * np.finfo(np.float64).eps * s.max(initial=0.0)
    keep = found & beyond_rounding(gaps @ Vt.T, total, whitening)
    left = gaps @ (Vt[keep].T / s[keep])
    right = whitening.transpose(U[:, keep]).T
    return left, np.linalg.solve(right @ left, right)


def beyond_rounding(gaps: Matrix, total: Moments, whitening: Whitening) -> Mask:
    """Return which of the gaps between means (d, k) are more than rounding, in some column that varies.

    Each column is judged by its own mean and spread: a column of few digits hides no gap in the others
    (test_a_column_of_few_digits_does_not_hide_the_gap_in_the_others).
    """
    rounding = 8 * np.finfo(np.float64).eps * (np.abs(total.mean) + np.sqrt(np.maximum(total.variance, 0.0)))
    beyond: Mask = (np.abs(gaps) > rounding[:, None])[whitening.live].sum(axis=0) > 0
    return beyond
