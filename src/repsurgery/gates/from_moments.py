"""Gates computed from class moments, without training: labels, nearest mean, LDA, QDA."""

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack

from repsurgery.arrays import Label, Matrix
from repsurgery.errors import SingularCovarianceError
from repsurgery.gates.base import GATES
from repsurgery.gates.rules import LabelsGate, LinearGate, QuadraticGate
from repsurgery.linalg.spectrum import cholesky_or_none, condition_estimate
from repsurgery.moments import ClassMoments

__all__ = ["labels", "lda", "nearest_mean", "qda"]

Covariance = Callable[[Label], Matrix]
"""A function from a label to the (shrunk) covariance (d, d) of that class."""


@GATES.register("labels")
def labels(moments: ClassMoments) -> LabelsGate:
    """Leave the decision to the labels that a call passes."""
    return LabelsGate(tuple(moments))


@GATES.register("nearest-mean")
def nearest_mean(moments: ClassMoments) -> LinearGate:
    """Assign each vector to the class whose mean is nearest, as one linear rule (two classes) or k of them."""
    means = np.array([m.mean for m in moments.values()])
    return _linear(moments, means, means - means.mean(axis=0), np.zeros(len(means)))


@GATES.register("lda")
def lda(moments: ClassMoments, covariance: Covariance) -> LinearGate:
    """Assign by the Gaussian posterior with one pooled within-class covariance."""
    weights = np.array([m.weight for m in moments.values()])
    weights /= weights.sum()
    pooled = sum(w * covariance(label) for w, label in zip(weights, moments, strict=True))
    R = _invertible(np.asarray(pooled), "lda", _tolerance(moments))
    means = np.array([m.mean for m in moments.values()])
    directions = lapack.dpotrs(R, (means - means.mean(axis=0)).T, lower=0)[0].T
    return _linear(moments, means, directions, np.log(weights))


def _linear(moments: ClassMoments, means: Matrix, directions: Matrix, offsets: Matrix) -> LinearGate:
    # score_c = (x − m)·g_c − ½ (μ_c − m)·g_c + offset_c, about the centre m: a large common offset loses no digits
    centre = means.mean(axis=0)
    constants = offsets - 0.5 * ((means - centre) * directions).sum(axis=1)
    if len(means) == 2:
        g = directions[1:] - directions[:1]
        return LinearGate(tuple(moments), g, constants[1:] - constants[:1] - g @ centre)
    return LinearGate(tuple(moments), directions, constants - directions @ centre)


@GATES.register("qda")
def qda(moments: ClassMoments, covariance: Covariance) -> QuadraticGate:
    """Assign by the Gaussian posterior with each class's own covariance."""
    total = moments.weight
    means, whiteners, constants = [], [], []
    for label, m in moments.items():
        R = _invertible(covariance(label), "qda", m.rank_tolerance)
        means.append(m.mean)
        whiteners.append(lapack.dtrtri(R, lower=0)[0].T)
        constants.append(np.log(m.weight / total) - np.log(np.diagonal(R)).sum())
    return QuadraticGate(tuple(moments), np.array(means), np.array(whiteners), np.array(constants))


def _tolerance(moments: ClassMoments) -> float:
    return max(m.rank_tolerance for m in moments.values())


def _invertible(S: Matrix, gate: str, tolerance: float) -> Matrix:
    R = cholesky_or_none(S)
    # posteriors do not depend on the units of the columns, and neither does the verdict
    scale = np.sqrt(np.maximum(np.diagonal(S), np.finfo(np.float64).tiny))
    if R is None or condition_estimate(S / scale / scale[:, None], R / scale) * tolerance**2 > 1:
        raise SingularCovarianceError(
            f"gate='{gate}' inverts a covariance that is singular here (constant columns, or fewer rows than "
            "dimensions). Choose shrinkage='oas', or gate='nearest-mean'."
        )
    return R
