"""Warnings that a fit gives: a missing concept, an unreachable target covariance, a large gain."""

import sys
import warnings

from sklearn import get_config

from repsurgery.certificates import Certificate
from repsurgery.errors import ConceptWarning, GainWarning, InfeasibleWarning

__all__ = ["warn_of_certificate", "warn_of_gain", "warn_of_missing_concept"]

GAIN_LIMIT = 100.0
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


def warn_of_certificate(certificate: Certificate) -> None:
    """Warn if no affine map reaches the target covariance, and if the map stretches some direction a great deal."""
    if not certificate.feasible:
        warnings.warn(
            f"{certificate.method}: no affine map reaches the target covariance: the source spans too few directions "
            f"(see certificate_.by_source). The closest one was taken; residual {certificate.covariance_gap:.2g},"
            f" bound {certificate.residual_bound:.2g}. Add source rows, or choose a shrinkage.",
            InfeasibleWarning,
            stacklevel=6,
        )
    warn_of_gain(
        certificate.method, certificate.gain, "'pooled' or 'oas'" if certificate.population == "source" else "'oas'"
    )


def warn_of_gain(method: str, gain: float, shrinkage: str) -> None:
    """Warn if the map stretches some direction a great deal; ``shrinkage`` names those that help."""
    if gain > GAIN_LIMIT:
        warnings.warn(
            f"{method}: the map stretches some direction {gain:.3g}-fold, so that noise in new data grows as much. Add "
            f"rows, or choose shrinkage={shrinkage}.",
            GainWarning,
            stacklevel=7,
        )
