"""Warnings that a fit gives: a missing concept, an unreachable target covariance, a large gain."""

import sys
import warnings
from collections.abc import Callable

import numpy as np
from sklearn import get_config

from repsurgery.arrays import Matrix
from repsurgery.certificates import Certificate
from repsurgery.errors import ConceptWarning, ConstantFeatureWarning, GainWarning, InfeasibleWarning
from repsurgery.moments import Moments

__all__ = ["warn_of_certificate", "warn_of_gain", "warn_of_missing_concept", "warn_of_what_is_left"]

GAIN_LIMIT = 100.0
THIN = 1e-6
"""Features whose spread is below this share of the widest are named as the likely reason of a large gain."""
COMPOSITES = ("sklearn.pipeline", "sklearn.compose", "sklearn.model_selection")
"""Modules whose estimators fit others, and route the concept to them where routing is enabled."""


def warn_of_missing_concept(estimator: str) -> None:
    """Warn if a composite of scikit-learn fits ``estimator`` without a concept although routing is enabled."""
    if get_config()["enable_metadata_routing"] and _called_by_composite():
        warnings.warn(
            f"The pipeline or search that fits {estimator} passed no concept, so y is used, although it is the task's "
            "label there. Pass concept=z to the outermost fit, also where y is the concept.",
            ConceptWarning,
            stacklevel=5,
        )


def _called_by_composite() -> bool:
    """Whether a pipeline, column transformer or search of scikit-learn is fitting, and not the user."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__", "").startswith(COMPOSITES):
            return True
    return False


def warn_of_certificate(certificate: Certificate, rows: Callable[[], Moments]) -> None:
    """Warn if no affine map reaches the target covariance, and if the map stretches some direction a great deal.

    ``rows`` returns the moments of all rows, which show features that hardly vary.
    """
    if not certificate.feasible:
        warnings.warn(
            f"{certificate.method}: no affine map reaches the target covariance: the source spans too few directions "
            f"(see certificate_.by_source). The closest one was taken; residual {certificate.covariance_gap:.2g},"
            f" bound {certificate.residual_bound:.2g}. Add source rows, or choose a shrinkage.",
            InfeasibleWarning,
            stacklevel=6,
        )
    helping = "'pooled' or 'oas'" if certificate.population == "source" else "'oas'"
    warn_of_gain(certificate.method, certificate.gain, helping, rows)


def warn_of_gain(method: str, gain: float, shrinkage: str, rows: Callable[[], Moments]) -> None:
    """Warn if the map stretches some direction a great deal; ``shrinkage`` names those that help."""
    if gain > GAIN_LIMIT:
        thin = rows().hardly_varying(THIN)
        remedy = f"{thin[0].upper()}{thin[1:]}: leave such features out" if thin else "Add rows"
        warnings.warn(
            f"{method}: the map stretches some direction {gain:.3g}-fold, so that noise in new data grows as much. "
            f"{remedy}, or choose shrinkage={shrinkage}.",
            GainWarning,
            stacklevel=7,
        )


def warn_of_what_is_left(gaps: Matrix, rows: Moments) -> None:
    """Warn if the class means still differ by ``gaps`` (d, k) in features that count as constant."""
    rounding = 8 * float(np.finfo(np.float64).eps) * (np.abs(rows.mean) + np.sqrt(rows.variance.max(initial=0.0)))
    constant = np.sqrt(rows.variance) <= rows.least_spread()
    left = constant & (np.abs(gaps).max(axis=1, initial=0.0) > rounding)
    if left.any():
        warnings.warn(
            f"LEACE: {rows.hardly_varying()}, which rounding of {rows.dtype} rows alone can cause, so that they "
            "count as constant; but the classes differ there, and this difference stays. If these features are "
            "measurements, rescale them or pass float64 rows; otherwise leave them out.",
            ConstantFeatureWarning,
            stacklevel=6,
        )
