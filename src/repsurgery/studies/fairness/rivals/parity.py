"""The problem of parity between groups: which class each row gets, at the least expected error.

Rows i have class scores s_i and a group a(i) of n_a rows. A coupling γ ≥ 0 with Σ_y γ_iy = 1 gives row i the class y
with probability γ_iy. The rate of class y in group a is q_ay = (1/n) Σ_{i in a} f_ay t_iy γ_iy, where

* demographic parity: t = 1 and f_ay = n / n_a, the share of group a that gets class y;
* equal opportunity: t_iy = s_iy and f_ay = n / Σ_{i in a} s_iy, the share of class y in group a that gets class y,
  with s_iy standing for P(Y = y | x_i). A class without mass in a group has no such rate and is left free there.

Minimise (1/n) Σ_iy γ_iy (1 − s_iy) subject to |q_ay − b_y| ≤ α/2 for some b: rates of two groups differ by α at most.

With multipliers μ_ay of q_ay, Σ_a μ_ay = 0 because b is free, minimising the Lagrangian over γ row by row leaves

    g(μ) = (1/n) Σ_i min_y (1 − s_iy − t_iy ψ_a(i)y) − (α/2) Σ_ay |μ_ay|,    ψ_ay = f_ay μ_ay.

Any such μ bounds the optimum from below, and at the best one each row gets a class that attains its minimum.

Under equal opportunity the cost is 1 − (1/n) Σ_ay q_ay Σ_{i in a} s_iy: it depends on the rates alone. A group that can
exceed the others in every rate has many ways to come down to them, all of one cost: its ψ is −1 and every class ties.
Gaining ε for a row that keeps its best class decides among them for the fewest changes.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Mask, Matrix

__all__ = ["Criterion", "ParityProblem", "adjusted", "keeping"]

Criterion = Literal["demographic-parity", "equal-opportunity"]

UNDECIDED = 1e-6
"""Factors 1 + ψ below this leave a group to rounding."""


def adjusted(scores: Matrix, psi: Matrix, criterion: Criterion) -> Matrix:
    """Return s + tψ, whose largest entry names the class of a row; ``psi`` is (K,) or one row per row of ``scores``."""
    return scores + psi if criterion == "demographic-parity" else scores * (1.0 + psi)


def keeping(scores: Matrix, gain: float) -> Matrix:
    """Return (n, K): ``gain`` at the best class of each row, 0 elsewhere."""
    kept = np.zeros_like(scores)
    kept[np.arange(len(scores)), scores.argmax(axis=1)] = gain
    return kept


@dataclass(frozen=True, slots=True)
class ParityProblem:
    """Scores, groups, tolerance and the factors f that make rates of them.

    Parameters
    ----------
    scores : (n, K) array
    codes : (n,) array of group numbers
    factors : (groups, K) array
        f_ay, and 0 where class y has no mass in group a.
    alpha : float
    criterion : {"demographic-parity", "equal-opportunity"}
    gain : float
        ε, what a row gains by keeping its best class.
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
        # two rates never differ by more than 1, and infinity times zero is no penalty
        return cls(scores, codes, factors, min(alpha, 1.0), criterion)

    @property
    def bound(self) -> Mask:
        """Return (groups, K): the rates that exist and are held to parity."""
        return self.factors > 0

    def weights(self) -> Matrix:
        """Return t (n, K)."""
        return self.scores if self.criterion == "equal-opportunity" else np.ones_like(self.scores)

    def gains(self) -> Matrix:
        """Return s (n, K), with ε added at the best class of each row."""
        return self.scores + keeping(self.scores, self.gain) if self.gain else self.scores

    def adjusted(self, mu: Matrix) -> Matrix:
        """Return s + tψ (n, K), and ε where it belongs, for multipliers (groups, K)."""
        values = adjusted(self.scores, (self.factors * mu)[self.codes], self.criterion)
        return values + keeping(self.scores, self.gain) if self.gain else values

    def undecided(self, mu: Matrix) -> Mask:
        """Return (groups,): where all classes tie throughout the group."""
        if self.criterion == "demographic-parity":
            return np.zeros(len(mu), dtype=np.bool_)
        return np.asarray(np.abs(1.0 + self.factors * mu).max(axis=1) < UNDECIDED)

    def thinned(self, most: int, *, gain: float) -> "ParityProblem":
        """Return the problem of about ``most`` rows, evenly out of each group and at least one, with this gain."""
        step = -(-len(self.scores) // most)
        rows = np.concatenate([np.flatnonzero(self.codes == a)[::step] for a in range(len(self.factors))])
        few = ParityProblem.of(self.scores[rows], self.codes[rows], alpha=self.alpha, criterion=self.criterion)
        return replace(few, gain=gain)

    def dual_value(self, mu: Matrix) -> float:
        """Return g(μ), a lower bound on every feasible coupling's cost; μ must sum to zero over groups."""
        return float(np.mean(1.0 - self.adjusted(mu).max(axis=1)) - self.alpha / 2 * np.abs(mu).sum())
