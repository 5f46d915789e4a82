"""Parity between groups as an optimisation problem: assign each row a class at the least expected error.

Rows i have joint probabilities p_iay of group a and class y, and class scores s_iy = Σ_a p_iay. If the group a(i) of
each row is known (attribute-aware), p_iay = s_iy for a = a(i) and 0 otherwise; if not (attribute-blind), p_iay is
P(A = a, Y = y | x_i). A coupling γ ≥ 0 with Σ_y γ_iy = 1 assigns row i the class y with probability γ_iy. The rate of
class y in group a is q_ay = (1/n) Σ_i f_ay t_iay γ_iy with f_ay = n / Σ_i t_iay, where

* demographic parity: t_iay = Σ_y' p_iay', the probability of the group: q is the share of group a that is assigned
  class y;
* equal opportunity: t_iay = p_iay: q is the share of class y in group a that is assigned class y. A class without mass
  in a group has no such rate and is not constrained there.

Minimise (1/n) Σ_iy γ_iy (1 − s_iy) subject to |q_ay − b_y| ≤ α/2 for some b: two groups' rates differ by at most α.

With multipliers μ_ay of q_ay, Σ_a μ_ay = 0 because b is free, minimising the Lagrangian over γ row by row leaves

    g(μ) = (1/n) Σ_i min_y (1 − s_iy − Σ_a t_iay ψ_ay) − (α/2) Σ_ay |μ_ay|,    ψ_ay = f_ay μ_ay.

Any such μ bounds the optimum from below, and at the best one each row is assigned a class that attains its minimum.

Under equal opportunity the cost is 1 − (1/n) Σ_ay q_ay Σ_i p_iay, which depends only on the rates. A group that can
exceed the others in every rate can be lowered to them in many ways of equal cost: its ψ is −1, and every class ties
where its rows are certain to be of this group. A reward ε for a row that keeps its best class selects the solution with
the fewest changes.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Mask, Matrix

__all__ = ["Criterion", "Joint", "ParityProblem", "adjusted", "known_groups"]

Criterion = Literal["demographic-parity", "equal-opportunity"]
Joint = NDArray[np.float64]
"""Probabilities (groups, n, K) of group and class."""

UNDECIDED = 1e-6
"""If all factors 1 + ψ of a group are below this, rounding would decide its classes."""


def known_groups(scores: Matrix, codes: NDArray[np.intp], groups: int) -> Joint:
    """Return the joint probabilities of rows with class ``scores`` (n, K) and known group numbers ``codes`` (n,)."""
    return np.where((codes == np.arange(groups)[:, np.newaxis])[:, :, np.newaxis], scores, 0.0)


def adjusted(joint: Joint, psi: Matrix, criterion: Criterion, *, gain: float = 0.0) -> Matrix:
    """Return s + Σ_a t_a ψ_a (n, K), plus ``gain`` at the best class; its largest entry is the class of a row."""
    return _shifted(joint.sum(axis=0), _weights(joint, criterion), psi, gain)


def _weights(joint: Joint, criterion: Criterion) -> Joint:
    """Return t (groups, n, K), or (groups, n, 1) if it is the same for every class."""
    if criterion == "equal-opportunity":
        return joint
    mass = joint.sum(axis=2, keepdims=True)
    shares: Joint = mass / mass.sum(axis=0)
    return shares


def _shifted(scores: Matrix, weights: Joint, psi: Matrix, gain: float) -> Matrix:
    values: Matrix = scores + np.einsum("aiy,ay->iy", np.broadcast_to(weights, (len(psi), *scores.shape)), psi)
    return values + _keeping(scores, gain) if gain else values


def _keeping(scores: Matrix, gain: float) -> Matrix:
    """Return (n, K): ``gain`` at the best class of each row, 0 elsewhere."""
    reward = np.zeros_like(scores)
    reward[np.arange(len(scores)), scores.argmax(axis=1)] = gain
    return reward


@dataclass(frozen=True, slots=True)
class ParityProblem:
    """Joint probabilities, tolerance, and the factors f of the rates.

    Parameters
    ----------
    joint : (groups, n, K) array
        p, with the group as the first axis.
    scores : (n, K) array
        s, the sum of ``joint`` over groups.
    weights : (groups, n, K) array
        t.
    factors : (groups, K) array
        f_ay, and 0 where class y has no mass in group a.
    alpha : float
    criterion : {"demographic-parity", "equal-opportunity"}
    gain : float
        ε, the reward of a row that keeps its best class.
    """

    joint: Joint
    scores: Matrix
    weights: Joint
    factors: Matrix
    alpha: float
    criterion: Criterion
    gain: float = 0.0

    @classmethod
    def of(cls, joint: Joint, *, alpha: float, criterion: Criterion) -> "ParityProblem":
        """Return the problem of these rows."""
        weights = np.broadcast_to(_weights(joint, criterion), joint.shape)
        mass = weights.sum(axis=1)
        factors = np.divide(joint.shape[1], mass, out=np.zeros_like(mass), where=mass > 0)
        # rates differ by at most 1, so alpha = 1 already means no constraint, and infinity times zero is avoided
        return cls(joint, joint.sum(axis=0), weights, factors, min(alpha, 1.0), criterion)

    @property
    def bound(self) -> Mask:
        """Return (groups, K): which rates exist and are constrained."""
        return self.factors > 0

    def gains(self) -> Matrix:
        """Return s (n, K), with ε added at the best class of each row."""
        return self.scores + _keeping(self.scores, self.gain) if self.gain else self.scores

    def adjusted(self, mu: Matrix) -> Matrix:
        """Return s + Σ_a t_a ψ_a (n, K), plus ε at the best class of each row, for multipliers (groups, K)."""
        return _shifted(self.scores, self.weights, self.factors * mu, self.gain)

    def undecided(self, mu: Matrix) -> Mask:
        """Return (groups,): whether all classes tie in every row that is certain to be of the group."""
        if self.criterion == "demographic-parity":
            return np.zeros(len(mu), dtype=np.bool_)
        return np.asarray(np.abs(1.0 + self.factors * mu).max(axis=1) < UNDECIDED)

    def thinned(self, most: int, *, gain: float) -> "ParityProblem":
        """Return the problem of about ``most`` rows, evenly spaced in each most probable group, with this gain."""
        step = -(-len(self.scores) // most)
        likely = self.joint.sum(axis=2).argmax(axis=0)
        rows = np.concatenate([np.flatnonzero(likely == a)[::step] for a in range(len(self.factors))])
        few = ParityProblem.of(self.joint[:, rows], alpha=self.alpha, criterion=self.criterion)
        return replace(few, gain=gain)

    def dual_value(self, mu: Matrix) -> float:
        """Return g(μ), a lower bound on the cost of every feasible coupling; μ must sum to zero over groups."""
        return float(np.mean(1.0 - self.adjusted(mu).max(axis=1)) - self.alpha / 2 * np.abs(mu).sum())
