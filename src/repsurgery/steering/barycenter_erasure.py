"""Quadratic erasure: every class to the Bures–Wasserstein barycentre of them all."""

import warnings
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from repsurgery.arrays import Label, Matrix, Vector
from repsurgery.certificates.certificate import Claim, Population
from repsurgery.certificates.from_moments import Method, Solution
from repsurgery.errors import ParameterError
from repsurgery.linalg.spectrum import rank_tolerance
from repsurgery.linalg.transport import transport_matrix
from repsurgery.moments import ClassMoments, Moments
from repsurgery.moments.moments import Precision
from repsurgery.moments.shrinkage import NO_SHRINKAGE, FitRows, shrink_classes, shrunk_covariance
from repsurgery.steering.base import METHODS, BaseSteering
from repsurgery.steering.gaussian import gaussian_solution

__all__ = ["BarycenterErasure"]


@METHODS.register("barycenter")
class BarycenterErasure(BaseSteering):
    """Give every class one mean and one covariance, as cheaply as possible: no quadratic probe can read the concept.

    The common covariance is the Bures–Wasserstein barycentre of the class covariances, the common mean the overall
    mean, both weighted by ``weights``. Two classes have a closed form; more are solved by the fixed point of
    Álvarez-Esteban et al. (2016).

    Parameters
    ----------
    weights : {"frequencies", "uniform"}
        How much each class counts in the barycentre.
    max_iter, tol : int, float
        Limits of the fixed point: iterations, and relative change of the barycentre.
    shrinkage, ridge, gate, precision, folds, random_state
        See `MiMiC`. The gate decides which class's map a vector gets.

    Attributes
    ----------
    maps_ : dict of label to map, one for every class
    n_iter_ : int
        Steps of the fixed point; 1 for two classes.
    certificate_ : Certificate
        ``cost`` is over all rows.

    Guarantees
    ----------
    All classes have one mean and one covariance afterwards (test_barycenter_erasure_equalises_every_class).
    The overall mean does not move (test_barycenter_erasure_keeps_the_overall_mean).
    No common Gaussian is cheaper to reach (test_the_barycentre_is_cheaper_than_its_neighbours).
    """

    claims: ClassVar[tuple[Claim, ...]] = ("means", "covariances", "neighbours")
    population: ClassVar[Population] = "all"

    def __init__(
        self,
        *,
        weights: Literal["frequencies", "uniform"] = "frequencies",
        max_iter: int = 200,
        tol: float = 1e-12,
        shrinkage: str = "none",
        ridge: float = 1e-5,
        gate: Any = "nearest-mean",
        precision: Precision = "float64",
        folds: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.weights = weights
        self.max_iter = max_iter
        self.tol = tol
        self.shrinkage = shrinkage
        self.ridge = ridge
        self.gate = gate
        self.precision = precision
        self.folds = folds
        self.random_state = random_state

    def _solve(self, moments: ClassMoments, rows: FitRows | None) -> tuple[Method, dict[Label | None, Solution]]:
        s = shrink_classes(self.shrinkage, self.ridge, moments, rows)
        covariances = [shrunk_covariance(m, s[label]) for label, m in moments.items()]
        weights = self._class_weights(moments)
        tolerance = rank_tolerance(_coarsest(moments), moments.dim, from_scatter=True)
        if len(covariances) == 2:
            common, self.n_iter_ = _midpoint(covariances[0], covariances[1], float(weights[1]), tolerance), 1
        else:
            common, self.n_iter_ = self._fixed_point(covariances, weights, tolerance)
        mean = np.asarray(sum(w * m.mean for w, m in zip(weights, moments.values(), strict=True)))
        centre = _gaussian(moments, mean, common)
        solutions: dict[Label | None, Solution] = {
            label: gaussian_solution(m, centre, s[label], NO_SHRINKAGE) for label, m in moments.items()
        }
        return self._method(), solutions

    def _class_weights(self, moments: ClassMoments) -> Vector:
        if self.weights not in ("frequencies", "uniform"):
            raise ParameterError(f"weights is {self.weights!r}; it must be 'frequencies' or 'uniform'.")
        w = np.array([m.weight if self.weights == "frequencies" else 1.0 for m in moments.values()])
        return w / float(w.sum())

    def _fixed_point(self, covariances: list[Matrix], weights: Vector, tolerance: float) -> tuple[Matrix, int]:
        # the mean covariance spans every class, so each step starts from a range that contains its target's
        S: Matrix = np.asarray(sum(w * C for w, C in zip(weights, covariances, strict=True)))
        change = np.inf
        for step in range(1, self.max_iter + 1):
            T = sum(w * _weight(S, C, tolerance) for w, C in zip(weights, covariances, strict=True))
            following = T @ S @ T.T
            change = float(np.linalg.norm(following - S) / np.linalg.norm(S)) if S.any() else 0.0
            S = (following + following.T) / 2
            if change <= self.tol:
                return S, step
        warnings.warn(
            f"The barycentre still moved by {change:.1e} after {self.max_iter} steps. Raise max_iter or tol.",
            ConvergenceWarning,
            stacklevel=7,
        )
        return S, self.max_iter


def _weight(S0: Matrix, S1: Matrix, tolerance: float) -> Matrix:
    W = transport_matrix(S0, S1, (tolerance, tolerance)).weight
    assert W is not None
    return W


def _midpoint(S0: Matrix, S1: Matrix, t: float, tolerance: float) -> Matrix:
    """Return the point t along the geodesic from S0 to S1, which is the barycentre of two."""
    transport = transport_matrix(S0, S1, (tolerance, tolerance))
    if not transport.feasible:  # only the class of lower rank can be reached, so the other direction is feasible
        return _midpoint(S1, S0, 1 - t, tolerance)
    assert transport.weight is not None
    T = t * transport.weight
    T[np.diag_indices_from(T)] += 1 - t
    S = T @ S0 @ T.T
    return (S + S.T) / 2


def _gaussian(moments: ClassMoments, mean: Vector, covariance: Matrix) -> Moments:
    weight, count = moments.weight, sum(m.count for m in moments.values())
    return Moments(count, weight, mean, covariance * weight, None, _coarsest(moments))


def _coarsest(moments: ClassMoments) -> str:
    return "float64" if all(m.dtype == "float64" for m in moments.values()) else "float32"
