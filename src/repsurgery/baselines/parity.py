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
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Mask, Matrix

__all__ = ["Criterion", "ParityProblem", "adjusted"]

Criterion = Literal["demographic-parity", "equal-opportunity"]


def adjusted(scores: Matrix, psi: Matrix, criterion: Criterion) -> Matrix:
    """Return s + tψ, whose largest entry names the class of a row; ``psi`` is (K,) or one row per row of ``scores``."""
    return scores + psi if criterion == "demographic-parity" else scores * (1.0 + psi)


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
    """

    scores: Matrix
    codes: NDArray[np.intp]
    factors: Matrix
    alpha: float
    criterion: Criterion

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

    def adjusted(self, mu: Matrix) -> Matrix:
        """Return s + tψ (n, K) for multipliers (groups, K)."""
        return adjusted(self.scores, (self.factors * mu)[self.codes], self.criterion)

    def dual_value(self, mu: Matrix) -> float:
        """Return g(μ), a lower bound on every feasible coupling's cost; μ must sum to zero over groups."""
        return float(np.mean(1.0 - self.adjusted(mu).max(axis=1)) - self.alpha / 2 * np.abs(mu).sum())
