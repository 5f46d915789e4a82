"""Closed forms: from a candidate to a steering function, its predicted price and its predicted effect."""

import math
from dataclasses import dataclass, replace

import numpy as np

from repsurgery.arrays import Rows, Vector
from repsurgery.errors import DataError
from repsurgery.steering.function import SteeringFunction
from repsurgery.tuning.candidates import Candidate, gatings, methods
from repsurgery.tuning.evidence import Evidence
from repsurgery.tuning.offers import Offer, offered_function

__all__ = ["Form", "fitted_function", "form_of"]

MOST_GAIN = 3.0
"""A map that stretches a direction more than this at its strength is far outside of what its price is computed from."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A candidate's function and what is known of it before a text is written under it.

    Attributes
    ----------
    candidate : Candidate
    function : SteeringFunction
        At strength 1, without origin.
    unit_kl : float
        The predicted price at strength 1, by a Fisher matrix that took no part in the fit.
    slope : float or None
        The predicted change of the score per square root of a nat, by gradients of the half of the prompts on which the
        function was not fitted; None without gradients, behind a gate, and where a plug-in names other candidates for
        half of the prompts.
    slope_error : float
        Its standard error over prompts.
    gain : float
        The largest stretch of a direction at strength 1.
    """

    candidate: Candidate
    function: SteeringFunction
    unit_kl: float
    slope: float | None
    slope_error: float
    gain: float

    def strength(self, kl: float) -> float:
        """Return the strength at which it is predicted to cost ``kl``, rounded so that it can be written down."""
        return float(f"{math.sqrt(kl / self.unit_kl):.6g}")

    def gain_at(self, strength: float) -> float:
        """Return the largest stretch of a direction at ``strength``, which may lie beyond the map."""
        return max(m.interpolate(strength).gain() for m in self.function.maps.values())

    def direction(self, X: Rows) -> Vector:
        """Return the mean displacement (d,) of the rows ``X`` at a price of 1."""
        moved = np.asarray(self.function(X), dtype=np.float64) - X
        mean: Vector = moved.mean(axis=0) / math.sqrt(self.unit_kl)
        return mean


def form_of(candidate: Candidate | Offer, evidence: Evidence, plain: SteeringFunction | None = None) -> Form:
    """Fit a candidate, unless a plug-in did, and compute its price and slope.

    Parameters
    ----------
    candidate : Candidate or Offer
    evidence : Evidence
    plain : SteeringFunction or None
        The function of the same candidate without a gate, where it is known.

    Raises
    ------
    DataError
        It cannot be fitted on this evidence, or changes no prediction.
    """
    offer = candidate if isinstance(candidate, Offer) else _fitted(candidate, evidence, plain)
    function, site = offer.function, offer.candidate.site
    X, fisher = evidence.steps(site), evidence.judge(site)
    unit_kl = fisher.kl_on(function, X)
    if not (math.isfinite(unit_kl) and unit_kl > 0):
        raise DataError("It changes no prediction.")
    slope, error = None, 0.0
    if evidence.has_gradients and offer.half is not None:
        slopes = []
        for fit, judge in ((0, 1), (1, 0)):
            half = offer.half(fit)
            shift = (np.asarray(half(X), dtype=np.float64) - X).mean(axis=0)
            slopes.append(evidence.half(judge).gradients(site) @ shift / math.sqrt(fisher.kl_on(half, X)))
        every = np.concatenate(slopes)
        slope, error = float(every.mean()), float(every.std(ddof=1) / math.sqrt(len(every)))
    gain = max(m.gain() for m in function.maps.values())
    return Form(offer.candidate, function, unit_kl, slope, error, gain)


def _fitted(candidate: Candidate, evidence: Evidence, plain: SteeringFunction | None) -> Offer:
    def half(number: int) -> SteeringFunction:
        return fitted_function(candidate, evidence.half(number))

    function = fitted_function(candidate, evidence, plain)
    # a mean displacement says nothing of a gate, which chooses the states that it steers
    return Offer(candidate, function, half if candidate.scope == "all" and not candidate.text else None)


def fitted_function(
    candidate: Candidate, evidence: Evidence, plain: SteeringFunction | None = None
) -> SteeringFunction:
    """Return the steering function of a candidate at strength 1, fitted on ``evidence``, which may be a half.

    ``plain`` is the function of the same candidate without a gate, where it is known.
    """
    if plain is not None:
        function = plain
    elif candidate.text:
        function = offered_function(candidate, evidence)
    else:
        function = methods()[candidate.method].function(candidate, evidence)
    return function if candidate.scope == "all" else _behind_gate(function, candidate, evidence)


def _behind_gate(function: SteeringFunction, c: Candidate, evidence: Evidence) -> SteeringFunction:
    labels = (evidence.source, evidence.target)
    # the digest covers the order of the classes, and texts are stored under it
    return replace(function, classes=labels).behind(gatings()[c.scope](evidence, c.site), source=evidence.source)
