"""Methods of a search that are fitted from moments: mean matching, MiMiC and LEACE."""

import warnings

from repsurgery.errors import GainWarning
from repsurgery.steering.base import build_method
from repsurgery.steering.function import SteeringFunction
from repsurgery.tuning.candidates import CANDIDATES, Candidate, Method
from repsurgery.tuning.evidence import Evidence

__all__: list[str] = []


def _fitted(name: str, shrinkage: str, c: Candidate, evidence: Evidence) -> SteeringFunction:
    kind, _, alpha = shrinkage.partition(" ")
    estimator = build_method(
        name,
        source=evidence.source,
        target=evidence.target,
        shrinkage=kind,
        alpha=float(alpha) if alpha else "auto",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GainWarning)  # the gain is one of the reasons to drop a candidate
        return estimator.fit_moments(evidence.moments(c.fit, c.site)).steering_


def _mean(c: Candidate, evidence: Evidence) -> SteeringFunction:
    return _fitted("mean", "none", c, evidence)


def _mimic(c: Candidate, evidence: Evidence) -> SteeringFunction:
    return _fitted("mimic", c.shrinkage, c, evidence)


def _leace(c: Candidate, evidence: Evidence) -> SteeringFunction:
    return _fitted("leace", "oas", c, evidence)


CANDIDATES.register("mean")(Method(_mean))
# without any shrinkage the covariances of states of texts are singular
CANDIDATES.register("mimic")(Method(_mimic, shrinkages=("pooled", "pooled 0.5", "pooled 0.8")))
# LEACE is one map for every class, and a gate would take its guarantee away
CANDIDATES.register("leace")(Method(_leace, gated=False))
