"""Methods of a search that are fitted from gradients and a Fisher matrix: natural shifts and their sums."""

from dataclasses import replace

import repsurgery as rs
from repsurgery.arrays import Vector
from repsurgery.steering.function import SteeringFunction
from repsurgery.tuning.candidates import CANDIDATES, Candidate, Method
from repsurgery.tuning.evidence import Evidence

__all__: list[str] = []


def _natural(c: Candidate, evidence: Evidence) -> SteeringFunction:
    """Return the shift with the greatest first-order effect per nat.

    On texts, that is the effect on the log-likelihood of target texts less that of source texts; otherwise on the score
    of the model's own texts, with credit for each step.
    """
    return _shift(c, evidence, c.fit, None)


def _natural_mean(c: Candidate, evidence: Evidence) -> SteeringFunction:
    """Return the natural shift with the difference of the means added, at an equal price."""
    moments = evidence.moments(c.fit, c.site)
    return _shift(c, evidence, c.fit, moments[evidence.target].mean - moments[evidence.source].mean)


def _blend(c: Candidate, evidence: Evidence) -> SteeringFunction:
    """Return the sum of "natural-mean" on texts and "natural" on the model's own texts, at equal prices."""
    (on_texts,) = _natural_mean(replace(c, fit="texts"), evidence).maps.values()
    return _shift(c, evidence, "on-policy", on_texts.bias)


def _shift(c: Candidate, evidence: Evidence, fit: str, added: Vector | None) -> SteeringFunction:
    G = evidence.gradients(c.site, fit=fit)
    natural = rs.NaturalSteering(kl=1.0, damping=c.damping, with_shift=added, folds=min(5, len(G)))
    return natural.fit(G, fisher=evidence.fisher(c.site)).steering_


# with credit for each step there is one gradient, however steps are labelled
CANDIDATES.register("natural")(Method(_natural, fits=("texts", "on-policy"), from_gradients=True))
CANDIDATES.register("natural-mean")(Method(_natural_mean, from_gradients=True))
CANDIDATES.register("blend")(Method(_blend, fits=("texts",), also=("on-policy",), from_gradients=True))
