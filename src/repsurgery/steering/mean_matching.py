"""Mean matching: the steering vector, h + μ₁ − μ₀."""

from typing import ClassVar

import numpy as np

from repsurgery.affine import Translation
from repsurgery.certificates.certificate import Claim
from repsurgery.certificates.from_moments import Solution
from repsurgery.moments import Moments
from repsurgery.moments.shrinkage import Shrinkage
from repsurgery.steering.base import METHODS
from repsurgery.steering.toward import TowardTarget

__all__ = ["MeanMatching"]


@METHODS.register("mean")
class MeanMatching(TowardTarget):
    """Move each source class so that its mean is the target's, as cheaply as any affine map can.

    s(h) = h + μ₁ − μ₀ (Proposition 1 of the paper).

    Parameters
    ----------
    source, target : label, list of labels, or None
        The classes to steer and the class to steer them to. The target defaults to the last sorted label,
        the sources to all other classes.
    shrinkage, ridge, alpha
        See `MiMiC`. Only gates that read covariances use them, such as "lda" and "qda".
    gate : {"nearest-mean", "always", "labels", "logistic", "mlp", "lda", "qda"}, or a fitted gate or classifier
        Which vectors are steered when a call passes no labels.
    precision : {"float64", "float32-products"}
        How moments are accumulated.
    folds : int or None
        Into so many parts the rows of each class are split, or the groups of rows; each part is steered by a map fitted
        on all others, and ``certificate_.held_out`` holds the gaps that are left. It costs as many more fits.
    random_state : int or None
        Seed of the "mlp" gate.

    Attributes
    ----------
    map_ : Translation
    maps_ : dict of label to Translation
    steering_ : SteeringFunction
    certificate_ : Certificate
    moments_ : ClassMoments

    Guarantees
    ----------
    The steered class has exactly the target's mean (test_mean_matching_equalises_means).
    No convex-loss affine probe beats the prior (test_equal_means_leave_a_logistic_probe_at_the_prior_entropy).
    No affine map with that mean is cheaper: the cost is ‖μ₁ − μ₀‖² (test_cost_attains_the_stated_optimum).
    Applied by a gate with Youden index J, (1 − J)‖μ₁ − μ₀‖ of the gap remains
    (test_an_imperfect_gate_leaves_one_minus_j_of_the_gap).

    Examples
    --------
    >>> import numpy as np, repsurgery as rs
    >>> X, z = np.array([[0.0, 0.0], [2.0, 0.0], [10.0, 1.0], [12.0, 1.0]]), [0, 0, 1, 1]
    >>> rs.MeanMatching().fit(X, z).map_.shift
    array([10.,  1.])
    """

    claims: ClassVar[tuple[Claim, ...]] = ("means",)

    def _pair(self, source: Moments, target: Moments, s0: Shrinkage, s1: Shrinkage) -> Solution:
        shift = target.mean - source.mean
        return Solution(Translation(shift), float(np.square(shift).sum()))
