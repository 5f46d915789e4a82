"""Methods of a search that are fitted from moments: mean matching, MiMiC and LEACE."""

import warnings

import repsurgery as rs
from repsurgery.errors import GainWarning
from repsurgery.steering.base import BaseSteering
from repsurgery.steering.function import SteeringFunction
from repsurgery.tuning.candidates import CANDIDATES, Candidate, Method
from repsurgery.tuning.evidence import Evidence

__all__: list[str] = []


def _mean(c: Candidate, evidence: Evidence) -> SteeringFunction:
    return _fitted(rs.MeanMatching(source=evidence.source, target=evidence.target, gate="always"), c, evidence)


def _mimic(c: Candidate, evidence: Evidence) -> SteeringFunction:
    _, _, alpha = c.shrinkage.partition(" ")
    est = rs.MiMiC(
        source=evidence.source,
        target=evidence.target,
        gate="always",
        shrinkage="pooled",
        alpha=float(alpha) if alpha else "auto",
    )
    return _fitted(est, c, evidence)


def _leace(c: Candidate, evidence: Evidence) -> SteeringFunction:
    return _fitted(rs.LEACE(shrinkage="oas"), c, evidence)


def _fitted(estimator: BaseSteering, c: Candidate, evidence: Evidence) -> SteeringFunction:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GainWarning)  # the gain is one of the reasons to drop a candidate
        return estimator.fit_moments(evidence.moments(c.fit, c.site)).steering_


CANDIDATES.register("mean")(Method(_mean))
# without any shrinkage the covariances of states of texts are singular
CANDIDATES.register("mimic")(Method(_mimic, shrinkages=("pooled", "pooled 0.5", "pooled 0.8")))
# LEACE is one map for every class, and a gate would take its guarantee away
CANDIDATES.register("leace")(Method(_leace, gated=False))
