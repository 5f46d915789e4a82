"""Closed forms: from a candidate to a steering function, its predicted price and its predicted effect."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

import repsurgery as rs
from repsurgery.arrays import Rows, Vector
from repsurgery.errors import DataError, GainWarning
from repsurgery.gates import Gate, LinearGate
from repsurgery.moments.shrinkage import Alpha
from repsurgery.steering.base import BaseSteering
from repsurgery.steering.function import SteeringFunction
from repsurgery.tuning.candidates import Candidate
from repsurgery.tuning.evidence import Evidence

__all__ = ["Form", "fitted_function", "form_of"]

MOST_GAIN = 3.0
"""A map that stretches a direction more than this at its strength is far outside of what its price is computed from."""
STEERED = 0.2
"""The share of the model's own steps that a gate steers."""


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
        function was not fitted; None without gradients or behind a gate.
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


def form_of(candidate: Candidate, evidence: Evidence) -> Form:
    """Fit a candidate and compute its price and slope.

    Raises
    ------
    DataError
        It cannot be fitted on this evidence, or changes no prediction.
    """
    site, X, fisher = candidate.site, evidence.steps(candidate.site), evidence.judge(candidate.site)
    function = fitted_function(candidate, evidence)
    unit_kl = fisher.kl_on(function, X)
    if not (math.isfinite(unit_kl) and unit_kl > 0):
        raise DataError("It changes no prediction.")
    slope, error = None, 0.0
    if evidence.has_gradients and candidate.scope == "all":
        slopes = []
        for fit, judge in ((0, 1), (1, 0)):
            half = fitted_function(candidate, evidence, halves=(fit,))
            shift = (np.asarray(half(X), dtype=np.float64) - X).mean(axis=0)
            slopes.append(evidence.gradients(site, halves=(judge,)) @ shift / math.sqrt(fisher.kl_on(half, X)))
        every = np.concatenate(slopes)
        slope, error = float(every.mean()), float(every.std(ddof=1) / math.sqrt(len(every)))
    gain = max(m.gain() for m in function.maps.values())
    return Form(candidate, function, unit_kl, slope, error, gain)


def fitted_function(candidate: Candidate, evidence: Evidence, *, halves: Sequence[int] = (0, 1)) -> SteeringFunction:
    """Return the steering function of a candidate at strength 1, fitted on both halves or on one."""
    c = candidate
    source, target = evidence.source, evidence.target
    if c.is_natural:
        function = _natural(c, evidence, halves)
    else:
        moments = evidence.moments(c.fit, c.site, halves=halves)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GainWarning)  # the gain is one of the reasons to drop a candidate
            function = _estimator(c, source, target).fit_moments(moments).steering_
    return function if c.scope == "all" else _behind_gate(function, c, evidence)


def _natural(c: Candidate, evidence: Evidence, halves: Sequence[int]) -> SteeringFunction:
    """Return the natural shift of a candidate at a price of one nat, with the shifts that are added to it."""
    shift: Vector | None = None
    if c.method == "blend":
        texts = _natural(replace(c, method="natural-mean"), evidence, halves)
        (m,) = texts.maps.values()
        shift = m.bias
    elif c.method == "natural-mean":
        moments = evidence.moments(c.fit, c.site, halves=halves)
        shift = moments[evidence.target].mean - moments[evidence.source].mean
    on_texts = c.fit == "texts" and c.method != "blend"
    G = evidence.text_gradients[c.site] if on_texts else evidence.gradients(c.site, halves=halves)
    natural = rs.NaturalSteering(kl=1.0, damping=c.damping, with_shift=shift, folds=min(5, len(G)))
    return natural.fit(G, fisher=evidence.fisher(c.site)).steering_


def _estimator(c: Candidate, source: str, target: str) -> BaseSteering:
    if c.method == "leace":
        return rs.LEACE(shrinkage="oas")
    if c.method == "mean":
        return rs.MeanMatching(source=source, target=target, gate="always")
    _, _, alpha = c.shrinkage.partition(" ")
    how: Alpha = float(alpha) if alpha else "auto"
    return rs.MiMiC(source=source, target=target, gate="always", shrinkage="pooled", alpha=how)


def _behind_gate(function: SteeringFunction, c: Candidate, evidence: Evidence) -> SteeringFunction:
    source, target = evidence.source, evidence.target
    moments = evidence.moments("on-policy", c.site)
    gate: Gate = rs.build_gate("lda", moments, shrinkage="oas")
    assert isinstance(gate, LinearGate)
    X = evidence.steps(c.site)
    if c.scope == "soft":
        gate = rs.calibrate_soft_gate(gate, X, source=source)
    else:
        gate = rs.calibrate_gate(gate, X, source=source, rate=STEERED)
    # the digest covers the order of the classes, and texts are stored under it
    return replace(function, classes=(source, target)).behind(gate, source=source)
