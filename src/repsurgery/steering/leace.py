"""LEACE: erase a concept from every vector, as cheaply as any affine map can."""

from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from repsurgery.affine import LowRank
from repsurgery.arrays import Label
from repsurgery.certificates.certificate import Claim, Population
from repsurgery.certificates.from_moments import Method, Solution
from repsurgery.linalg.transport import Range
from repsurgery.linalg.whitening import Whitening, by_range, whitening_of
from repsurgery.moments import ClassMoments, Moments
from repsurgery.moments.moments import Precision
from repsurgery.moments.shrinkage import FitRows, Shrinkage, shrink, shrunk_covariance
from repsurgery.steering.base import METHODS, BaseSteering
from repsurgery.steering.function import EVERYBODY

__all__ = ["LEACE"]


@METHODS.register("leace")
class LEACE(BaseSteering):
    """Make all class means coincide, so that no convex-loss linear probe can read the concept.

    g(h) = h − Σ^½ P Σ^-½ (h − μ), with P the orthogonal projector on the whitened class-mean differences
    (Belrose et al. 2023). One map for every vector; no labels are needed to apply it.

    Parameters
    ----------
    shrinkage : {"none", "ridge", "relative-ridge", "oas", "ledoit-wolf"}
        How the total covariance is regularised before it is inverted. Erasure stays exact; only its cost grows.
    ridge : float
        The size of the ridge, where the shrinkage has one.
    precision : {"float64", "float32-products"}
        How moments are accumulated.

    Attributes
    ----------
    map_ : LowRank
        Differs from the identity by rank k − 1 at most.
    certificate_ : Certificate
        ``cost`` is over all rows.

    Guarantees
    ----------
    All class means coincide afterwards, for any number of classes of any label type and any frequency
    (test_leace_equalises_class_means, test_integer_labels_of_four_classes_are_erased,
    test_fifteen_rows_in_two_hundred_thousand_are_erased).
    The overall mean does not move and the map is idempotent (test_leace_is_a_projection_that_keeps_the_mean).
    No affine map that equalises the means is cheaper (test_cost_attains_the_stated_optimum).

    Examples
    --------
    >>> import numpy as np, repsurgery as rs
    >>> X, z = np.array([[0.0, 1.0], [1.0, 0.0], [4.0, 1.0], [5.0, 0.0]]), [0, 0, 1, 1]
    >>> erased = rs.LEACE().fit(X, z).transform(X)
    >>> bool(np.allclose(erased[:2].mean(axis=0), erased[2:].mean(axis=0)))
    True
    """

    claims: ClassVar[tuple[Claim, ...]] = ("means",)
    population: ClassVar[Population] = "all"

    def __init__(self, *, shrinkage: str = "none", ridge: float = 1e-5, precision: Precision = "float64") -> None:
        self.shrinkage = shrinkage
        self.ridge = ridge
        self.precision = precision

    def _solve(self, moments: ClassMoments, rows: FitRows | None) -> tuple[Method, dict[Label | None, Solution]]:
        total = moments.total
        s = shrink(self.shrinkage, self.ridge, total, rows)
        gaps = np.stack([m.mean - total.mean for m in moments.values()], axis=1)
        left, right = erasing_directions(gaps, total, whiten(total, s))
        m = LowRank(-left, right, left @ (right @ total.mean))
        return self._method(), {EVERYBODY: Solution(m, float(np.square(left).sum()))}


def whiten(m: Moments, s: Shrinkage) -> Whitening:
    """Return the whitening of the (shrunk) covariance of ``m``; factors are never squared."""
    if m.factor is not None and m.count < m.dim:
        span = m.range()
        return by_range(Range(span.basis, np.sqrt(s.keep * span.scale**2 + s.floor)))
    return whitening_of(shrunk_covariance(m, s), m.rank_tolerance)


def erasing_directions(gaps: Any, total: Moments, whitening: Whitening) -> tuple[Any, Any]:
    """Return left (d, r), right (r, d) with right @ left = I and left spanning the ``gaps`` (d, k).

    ``left`` is a combination of the gaps and ``right`` is rescaled to it, so that W = I − left @ right annihilates
    them to the last bit for every condition number of Σ. A gap within rounding of the means counts as zero.
    """
    U, s, Vt = linalg.svd(whitening.apply(gaps), full_matrices=False, check_finite=False)
    eps = np.finfo(np.float64).eps
    offset = 1.0 + float(np.linalg.norm(whitening.apply(total.mean[:, None])))
    keep = s > max(total.dim * eps * s.max(initial=0.0), 8 * eps * offset)
    left = gaps @ (Vt[keep].T / s[keep])
    right = whitening.transpose(U[:, keep]).T
    return left, np.linalg.solve(right @ left, right)
