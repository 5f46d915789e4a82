"""MidSteer: switch one concept for another by the cheapest affine map that leaves the neutral mean alone."""

from typing import Any, ClassVar

import numpy as np

from repsurgery.affine import LowRank
from repsurgery.arrays import Label
from repsurgery.certificates.certificate import Claim, Population
from repsurgery.certificates.from_moments import Method, Solution
from repsurgery.errors import LabelError, SingularCovarianceError
from repsurgery.linalg.whitening import Whitening
from repsurgery.moments import ClassMoments, Moments
from repsurgery.moments.moments import Precision
from repsurgery.moments.shrinkage import FitRows, shrink
from repsurgery.steering.base import METHODS, BaseSteering
from repsurgery.steering.leace import beyond_rounding, whiten
from repsurgery.steering.selection import known_label, select_classes

__all__ = ["MidSteer"]


@METHODS.register("midsteer")
class MidSteer(BaseSteering):
    """Send the source mean to the target mean along one direction, moving neutral vectors as little as possible.

    With neutral moments μ, Σ and δ = μ_source − μ: s(h) = h + (μ_target − μ_source) · δᵀΣ⁻¹(h − μ) / δᵀΣ⁻¹δ,
    after MidSteer (arXiv 2605.05220). Of all affine maps that fix μ and send the source mean to the target mean it has
    the least E‖h − s(h)‖² over the neutral distribution.

    Parameters
    ----------
    source, target : label, list of labels, or None
        See `MeanMatching`; each source has its own map.
    neutral : label or None
        The class whose mean stays and over which the cost of the map is measured; None pools all classes.
    shrinkage, ridge, gate, precision, folds, random_state
        See `MiMiC`. With ``gate="always"`` every vector moves in proportion to how much of the source it carries.

    Attributes
    ----------
    map_ : LowRank
        Of rank one.
    certificate_ : Certificate
        ``cost`` and ``optimal_cost`` are over the neutral distribution.

    Guarantees
    ----------
    The source mean lands on the target mean and the neutral mean stays (test_midsteer_switches_means).
    With pooled classes, strength P(target) along its path is LEACE (test_leace_is_midsteer_part_of_the_way).
    Where the source carries the concept without spread, it acts there as the steering vector
    (test_midsteer_is_the_steering_vector_where_the_concept_has_no_spread).
    """

    claims: ClassVar[tuple[Claim, ...]] = ("means",)
    population: ClassVar[Population] = "neutral"

    def __init__(
        self,
        source: Any = None,
        target: Any = None,
        *,
        neutral: Any = None,
        shrinkage: str = "none",
        ridge: float = 1e-5,
        gate: Any = "nearest-mean",
        precision: Precision = "float64",
        folds: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.source = source
        self.target = target
        self.neutral = neutral
        self.shrinkage = shrinkage
        self.ridge = ridge
        self.gate = gate
        self.precision = precision
        self.folds = folds
        self.random_state = random_state

    def _solve(self, moments: ClassMoments, rows: FitRows | None) -> tuple[Method, dict[Label | None, Solution]]:
        sources, target = self._select(moments)
        name = None if self.neutral is None else known_label(moments, self.neutral)
        neutral = moments.total if name is None else moments[name]
        whitening = self._whitening(neutral, rows, name)
        solutions: dict[Label | None, Solution] = {
            c: self._switch(moments[c], moments[target], neutral, whitening, c) for c in sources
        }
        return self._method(target=target, neutral=name), solutions

    def _select(self, moments: ClassMoments) -> tuple[list[Label], Label]:
        sources, target = select_classes(moments, self.source, self.target)
        if self.neutral is None or self.source is not None:
            return sources, target
        sources = [label for label in sources if label != self.neutral]
        if not sources:
            raise LabelError(
                f"Of the classes {moments.labels}, {target!r} is the target and {self.neutral!r} neutral: none is "
                "left to steer. Choose another neutral class, or None to pool them."
            )
        return sources, target

    def _whitening(self, neutral: Moments, rows: FitRows | None, name: Label | None) -> Whitening:
        s = shrink(self.shrinkage, self.ridge, neutral, rows, name)
        whitening = whiten(neutral, s)
        if self.neutral is not None and not whitening.full_rank and s.floor == 0:
            thin = neutral.hardly_varying()
            raise SingularCovarianceError(
                "MidSteer measures the cost of its map by the neutral class's covariance, which is singular here"
                f"{f' ({thin})' if thin else ''}. Add neutral rows, leave constant features out, "
                "choose shrinkage='oas', or pool all classes with neutral=None."
            )
        return whitening

    @staticmethod
    def _switch(source: Moments, target: Moments, neutral: Moments, whitening: Whitening, label: Label) -> Solution:
        gap = (source.mean - neutral.mean)[:, None]
        scores = whitening.apply(gap)
        size = float(np.square(scores).sum())
        if size == 0 or not beyond_rounding(gap, neutral, whitening)[0]:
            raise LabelError(
                f"The mean of source {label!r} equals the neutral mean, so that no direction separates them. "
                "Choose another neutral class."
            )
        read = whitening.transpose(scores).T / size
        read /= read @ gap
        move = (target.mean - source.mean)[:, None]
        m = LowRank(move, read, -(move * (read @ neutral.mean))[:, 0])
        return Solution(m, float(np.square(move).sum() / size))
