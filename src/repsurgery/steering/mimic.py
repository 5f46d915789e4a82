"""MiMiC: match mean and covariance by the Gaussian optimal-transport map."""

from typing import ClassVar

from repsurgery.certificates.certificate import Claim
from repsurgery.certificates.from_moments import Solution
from repsurgery.moments import Moments
from repsurgery.moments.shrinkage import Shrinkage
from repsurgery.steering.base import METHODS
from repsurgery.steering.gaussian import gaussian_solution
from repsurgery.steering.toward import TowardTarget

__all__ = ["MiMiC"]


@METHODS.register("mimic")
class MiMiC(TowardTarget):
    """Give each source class the target's mean and covariance, as cheaply as any affine map can.

    W = Σ₀^-½ (Σ₀^½ Σ₁ Σ₀^½)^½ Σ₀^-½ and b = μ₁ − Wμ₀ (Proposition 2 of the paper), the optimal-transport map
    between Gaussians.

    Parameters
    ----------
    source, target : label, list of labels, or None
        The classes to steer and the class to steer them to. The target defaults to the last sorted label,
        the sources to all other classes.
    shrinkage : {"none", "pooled", "ridge", "relative-ridge", "oas", "ledoit-wolf"}
        "pooled" draws both covariances towards their mean, weighted by rows, "ridge" adds ``ridge`` to both diagonals
        (POT, the paper's experiments), "relative-ridge" adds ``ridge`` · tr Σ / d, "oas" reads moments, "ledoit-wolf"
        needs rows in memory. Each gives up the exact covariance for stability; the certificate says by how much.
    ridge : float
        The size of the ridge, where the shrinkage has one.
    alpha : float or "auto"
        With "pooled", how far: 0 is MiMiC, 1 is mean matching. "auto" takes, class by class, the share that the
        covariance's error has in its distance from the pooled one, as the number of independent rows tells.
    gate, precision, folds, random_state
        See `MeanMatching`.

    Attributes
    ----------
    map_ : Dense, or LowRank where both classes together have fewer rows than dimensions
        A Translation where both classes are wholly pooled.
    maps_ : dict of label to map
    steering_ : SteeringFunction
    certificate_ : Certificate
    moments_ : ClassMoments
    alpha_ : dict
        With "pooled": the alpha of source and target by label; with several sources, the pair of each source.

    Guarantees
    ----------
    The steered class has the target's mean and covariance (test_mimic_equalises_means_and_covariances).
    Its expected bias by neighbours is zero (test_mimic_has_no_expected_bias_by_neighbours).
    No affine map with those moments is cheaper: the cost is the Bures–Wasserstein distance
    (test_cost_attains_the_stated_optimum).
    Where the target has rank at most the source's this holds for singular covariances too; elsewhere the residual is
    the smallest any affine map attains, and reported (test_rank_deficiency_is_exact_where_feasible,
    test_infeasible_ranks_attain_the_smallest_residual).
    Directions in which the source has no variance are left untouched (test_unseen_directions_are_left_untouched).
    With "pooled", alpha = 0 is MiMiC and alpha = 1 mean matching; between them the map is optimal for the shrunk
    covariances, and the certificate states the gap that remains (test_alpha_zero_is_mimic,
    test_alpha_one_is_mean_matching, test_the_map_takes_one_shrunk_covariance_to_the_other,
    test_the_certificate_states_the_gap_that_pooling_leaves).

    Examples
    --------
    >>> import numpy as np, repsurgery as rs
    >>> X, z = np.array([[-1.0], [1.0], [8.0], [12.0]]), ["a", "a", "b", "b"]
    >>> mimic = rs.MiMiC(source="a", target="b").fit(X, z)
    >>> mimic.map_.weight, mimic.map_.bias
    (array([[2.]]), array([10.]))
    """

    claims: ClassVar[tuple[Claim, ...]] = ("means", "covariances", "neighbours")
    shrinks: ClassVar[bool] = True
    study_shrinkage: ClassVar[str] = "ridge"
    text_shrinkage: ClassVar[str] = "pooled"

    def _pair(self, source: Moments, target: Moments, s0: Shrinkage, s1: Shrinkage) -> Solution:
        return gaussian_solution(source, target, s0, s1)
