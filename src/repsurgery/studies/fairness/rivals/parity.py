"""Parity between groups as an optimisation problem: assign each row a class at the least expected error.

Rows i have class scores s_i and a group a(i) of n_a rows. A coupling γ ≥ 0 with Σ_y γ_iy = 1 assigns row i the class
y with probability γ_iy. The rate of class y in group a is q_ay = (1/n) Σ_{i in a} f_ay t_iy γ_iy, where

* demographic parity: t = 1 and f_ay = n / n_a, the share of group a that is assigned class y;
* equal opportunity: t_iy = s_iy and f_ay = n / Σ_{i in a} s_iy, the share of class y in group a that is assigned
  class y, with s_iy as P(Y = y | x_i). A class without mass in a group has no such rate and is not constrained there.

Minimise (1/n) Σ_iy γ_iy (1 − s_iy) subject to |q_ay − b_y| ≤ α/2 for some b: two groups' rates differ by at most α.

With multipliers μ_ay of q_ay, Σ_a μ_ay = 0 because b is free, minimising the Lagrangian over γ row by row leaves

    g(μ) = (1/n) Σ_i min_y (1 − s_iy − t_iy ψ_a(i)y) − (α/2) Σ_ay |μ_ay|,    ψ_ay = f_ay μ_ay.

Any such μ bounds the optimum from below, and at the best one each row is assigned a class that attains its minimum.

Under equal opportunity the cost is 1 − (1/n) Σ_ay q_ay Σ_{i in a} s_iy, which depends only on the rates. A group that
can exceed the others in every rate can be lowered to them in many ways of equal cost: its ψ is −1 and every class ties.
A reward ε for a row that keeps its best class selects the solution with the fewest changes.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Mask, Matrix

__all__ = ["Criterion", "ParityProblem", "adjusted", "keeping"]

Criterion = Literal["demographic-parity", "equal-opportunity"]

UNDECIDED = 1e-6
"""If all factors 1 + ψ of a group are below this, rounding would decide its classes."""


def adjusted(scores: Matrix, psi: Matrix, criterion: Criterion) -> Matrix:
    """Return s + tψ, whose largest entry is the class of a row; ``psi`` is (K,) or one row per row of ``scores``."""
    return scores + psi if criterion == "demographic-parity" else scores * (1.0 + psi)


def keeping(scores: Matrix, gain: float) -> Matrix:
    """Return (n, K): ``gain`` at the best class of each row, 0 elsewhere."""
    reward = np.zeros_like(scores)
    reward[np.arange(len(scores)), scores.argmax(axis=1)] = gain
    return reward


@dataclass(frozen=True, slots=True)
class ParityProblem:
    """Scores, groups, tolerance, and the factors f of the rates.

    Parameters
    ----------
    scores : (n, K) array
    codes : (n,) array of group numbers
    factors : (groups, K) array
        f_ay, and 0 where class y has no mass in group a.
    alpha : float
    criterion : {"demographic-parity", "equal-opportunity"}
    gain : float
        ε, the reward of a row that keeps its best class.
    """

    scores: Matrix
    codes: NDArray[np.intp]
    factors: Matrix
    alpha: float
    criterion: Criterion
    gain: float = 0.0

    @classmethod
    def of(cls, scores: Matrix, codes: NDArray[np.intp], *, alpha: float, criterion: Criterion) -> "ParityProblem":
        """Return the problem of these rows; every group number up to the largest has rows."""
        groups = range(int(codes.max()) + 1)
        if criterion == "demographic-parity":
            mass = np.array([np.full(scores.shape[1], (codes == a).sum(), dtype=np.float64) for a in groups])
        else:
            mass = np.array([scores[codes == a].sum(axis=0) for a in groups])
        factors = np.divide(len(scores), mass, out=np.zeros_like(mass), where=mass > 0)
        # rates differ by at most 1, so alpha = 1 already means no constraint, and infinity times zero is avoided
        return cls(scores, codes, factors, min(alpha, 1.0), criterion)

    @property
    def bound(self) -> Mask:
        """Return (groups, K): which rates exist and are constrained."""
        return self.factors > 0

    def weights(self) -> Matrix:
        """Return t (n, K)."""
        return self.scores if self.criterion == "equal-opportunity" else np.ones_like(self.scores)

    def gains(self) -> Matrix:
        """Return s (n, K), with ε added at the best class of each row."""
        return self.scores + keeping(self.scores, self.gain) if self.gain else self.scores

    def adjusted(self, mu: Matrix) -> Matrix:
        """Return s + tψ (n, K), plus ε at the best class of each row, for multipliers (groups, K)."""
        values = adjusted(self.scores, (self.factors * mu)[self.codes], self.criterion)
        return values + keeping(self.scores, self.gain) if self.gain else values

    def undecided(self, mu: Matrix) -> Mask:
        """Return (groups,): whether all classes tie in every row of the group."""
        if self.criterion == "demographic-parity":
            return np.zeros(len(mu), dtype=np.bool_)
        return np.asarray(np.abs(1.0 + self.factors * mu).max(axis=1) < UNDECIDED)

    def thinned(self, most: int, *, gain: float) -> "ParityProblem":
        """Return the problem of about ``most`` rows, evenly spaced in each group and at least one, with this gain."""
        step = -(-len(self.scores) // most)
        rows = np.concatenate([np.flatnonzero(self.codes == a)[::step] for a in range(len(self.factors))])
        few = ParityProblem.of(self.scores[rows], self.codes[rows], alpha=self.alpha, criterion=self.criterion)
        return replace(few, gain=gain)

    def dual_value(self, mu: Matrix) -> float:
        """Return g(μ), a lower bound on the cost of every feasible coupling; μ must sum to zero over groups."""
        return float(np.mean(1.0 - self.adjusted(mu).max(axis=1)) - self.alpha / 2 * np.abs(mu).sum())
