"""Preconditioned L-BFGS on cached logits: one product with X for a direction, one for its gradient."""

from collections import deque
from dataclasses import dataclass

import numpy as np

from repsurgery.arrays import Matrix
from repsurgery.studies.fairness.classifiers.kronecker import Curvature, Spectrum
from repsurgery.studies.fairness.classifiers.softmax import Logits, SoftmaxLoss

__all__ = ["Minimum", "minimise"]

MEMORY = 20
SLOPE_LEFT = 0.3
"""The line search stops once the slope is at most this share of the first; a trial costs a tenth of an iteration."""
TRIALS = 30

Pair = tuple[Matrix, Matrix]
"""A step s and the change y of the gradient along it."""


@dataclass(frozen=True, slots=True)
class Minimum:
    """The result: θ (K, d + 1), its loss, the decrement ½ gᵀM⁻¹g there, and the number of iterations."""

    theta: Matrix
    loss: float
    decrement: float
    iterations: int


def minimise(loss: SoftmaxLoss, *, tol: float, max_iter: int) -> Minimum:
    """Descend from W = 0, b = log of the class shares, until decrement ≤ ``tol`` · loss or no step reduces the loss."""
    spectrum, logits = Spectrum.of(loss), loss.logits()
    theta = loss.start()
    loss.along(theta, logits)
    logits.advance(1.0)
    logits.slope[:] = 0
    value, _ = loss.evaluate(0.0, logits)
    G = _balanced(loss.gradient(theta, logits.p))
    pairs: deque[Pair] = deque(maxlen=MEMORY)
    step = 1.0
    for done in range(max_iter + 1):
        M = Curvature(loss, spectrum, logits.p)
        decrement = 0.5 * float(np.vdot(G, M.solve(G)))
        if done == max_iter or decrement <= tol * value:
            break
        D = _direction(G, pairs, M)
        loss.along(D, logits)
        accepted = _search(loss, logits, theta, D, float(np.vdot(G, D)), value, step)
        if accepted is None and not pairs:
            break
        if accepted is None:
            # without the memory of L-BFGS, the preconditioner alone may still give a descent direction
            pairs.clear()
            step = 1.0
            loss.evaluate(0.0, logits)
            continue
        step, value = accepted
        logits.advance(step)
        theta = theta + step * D
        before, G = G, _balanced(loss.gradient(theta, logits.p))
        if np.vdot(D, G - before) > 0:
            pairs.append((step * D, G - before))
    return Minimum(theta, value, decrement, done)


def _direction(G: Matrix, pairs: deque[Pair], M: Curvature) -> Matrix:
    """Return −H G by the two loops of L-BFGS, where H starts from M⁻¹ scaled to the last step."""
    q, shares = G.copy(), []
    for s, y in reversed(pairs):
        shares.append(np.vdot(s, q) / np.vdot(s, y))
        q -= shares[-1] * y
    D = M.solve(q)
    if pairs:
        s, y = pairs[-1]
        D *= np.vdot(s, y) / np.vdot(y, M.solve(y))
    for (s, y), share in zip(pairs, reversed(shares), strict=True):
        D += (share - np.vdot(y, D) / np.vdot(s, y)) * s
    return -D


def _search(
    loss: SoftmaxLoss, logits: Logits, theta: Matrix, D: Matrix, slope: float, value: float, t: float
) -> tuple[float, float] | None:
    """Return (t, loss at θ + tD) with a small slope, or None if rounding hides every descent.

    The loss is convex along D, so the sign of the slope shows on which side of the minimum t lies.
    """
    if slope >= 0:
        return None
    low, high, slope_low, slope_high = 0.0, np.inf, slope, np.inf
    for _ in range(TRIALS):
        at, change = loss.evaluate(t, logits)
        at, change = loss.penalised(at, change, theta, D, t)
        if abs(change) <= SLOPE_LEFT * -slope:
            # the slope decides, because the loss is known only up to rounding
            return t, at
        if change < 0:
            low, slope_low = t, change
            t *= float(np.clip(slope / (slope - change), 1.5, 10.0)) if np.isinf(high) else 1.0
        else:
            high, slope_high = t, change
        if np.isfinite(high):
            t = low + (high - low) * float(np.clip(slope_low / (slope_low - slope_high), 0.1, 0.9))
    return None


def _balanced(G: Matrix) -> Matrix:
    """Return ``G``, changed in place, with its columns summing to exactly zero: they do so up to rounding."""
    G -= G.mean(axis=0)
    return G
