"""The dual problem for two groups: smoothed to find the multipliers, then exact to certify the optimum."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from repsurgery.arrays import Mask, Matrix, Vector
from repsurgery.studies.fairness.rivals.parity import ParityProblem
from repsurgery.studies.fairness.rivals.parity_program import Program, solve_program, solve_whole

__all__ = ["solve_dual"]

TEMPERATURES = (1e-2, 1e-3)
"""Smoothing of the maximum over classes, in units of a score; below the last one, L-BFGS only becomes slower."""
NEAR = 1e-2
"""Classes this close to a row's best one go into the first linear program."""
MOST_TIES = 20_000
"""Largest number of columns, beyond one per row, that are added at once."""
REACH = 0.1
"""How far the first linear program may move an offset, relative to 1 + |ψ|."""
LARGEST_REACH = 1e6
"""Beyond this the box constrains nothing, and one program with all columns is solved."""
MISSED = 1e-6
"""A program that misses parity by at most this many rows counts as feasible."""
CLOSED = 1e-9
"""Gap between primal and dual at which the optimum counts as certified."""


def solve_dual(problem: ParityProblem) -> Program:
    """Return the optimum for two groups, at a cost that grows about linearly with the rows.

    With two groups μ = (u, −u), so only the K numbers u are unknown. L-BFGS-B maximises g with its minima smoothed by
    log-sum-exp. The classes near each row's minimum form a linear program of few columns; its multipliers price the
    other columns, and those with negative reduced cost are added until primal and dual cost are equal.
    """
    mu, n_iter = _smoothed_optimum(problem)
    reach = REACH
    box = _around(problem, mu, reach)
    columns = _nearly_best(problem, mu)
    while reach <= LARGEST_REACH:
        program = solve_program(problem, columns, box=box)
        n_iter += program.n_iter
        wanted = _nearly_best(problem, program.mu)
        gap = program.objective - problem.dual_value(program.mu)
        if gap <= CLOSED or not (wanted & ~columns).any():
            if program.excess <= MISSED:
                return replace(program, n_iter=n_iter)
            reach *= 10
            box = _around(problem, program.mu, reach)
        columns |= wanted
    return solve_whole(problem)


def _around(problem: ParityProblem, mu: Matrix, reach: float) -> tuple[Matrix, Matrix]:
    """Return the box in which each ψ moves by ``reach`` times 1 + |ψ|; it stabilises the first programs."""
    f = np.where(problem.bound, problem.factors, 1.0)
    side = reach * (1.0 / f + np.abs(mu))
    return mu - side, mu + side


def _nearly_best(problem: ParityProblem, mu: Matrix) -> Mask:
    """Return the columns within `NEAR` of their row's best, or the nearest ones if a whole group ties."""
    values = problem.adjusted(mu)
    regret = values.max(axis=1, keepdims=True) - values
    most = len(regret) + MOST_TIES
    if (regret <= NEAR).sum() <= most:
        return np.asarray(regret <= NEAR)
    return np.asarray(regret <= np.partition(regret, most, axis=None)[most])


def _smoothed_optimum(problem: ParityProblem) -> tuple[Matrix, int]:
    smooth = _SmoothedDual.of(problem)
    K = len(smooth.unit)
    parts = np.zeros(2 * K)
    n_iter = 0
    for temperature in TEMPERATURES:
        # u = u⁺ − u⁻ with both parts ≥ 0 makes α‖u‖₁ linear
        result = minimize(
            smooth.cost, parts, args=(temperature,), jac=True, method="L-BFGS-B", bounds=[(0, None)] * (2 * K)
        )
        parts = result.x
        n_iter += int(result.nit)
    u = smooth.unit * (parts[:K] - parts[K:])
    return np.array([u, -u]), n_iter


@dataclass(frozen=True, slots=True)
class _SmoothedDual:
    """−g with log-sum-exp in place of the maximum, as a function of u⁺ and u⁻ in units of ``unit`` (K,).

    ``slopes`` (n, K) are f_0 t_0 − f_1 t_1, the derivatives of the values s + Σ_a t_a ψ_a in u.
    """

    problem: ParityProblem
    slopes: Matrix
    unit: Vector

    @classmethod
    def of(cls, problem: ParityProblem) -> "_SmoothedDual":
        first, second = problem.weights * problem.factors[:, np.newaxis]
        curvature = (problem.factors**2 * problem.joint.sum(axis=1)).sum(axis=0) / len(problem.scores)
        # a class that one group lacks is not constrained, so its multiplier stays at zero
        constrained = problem.bound.all(axis=0) & (curvature > 0)
        unit = np.where(constrained, 1.0 / np.sqrt(np.where(constrained, curvature, 1.0)), 0.0)
        return cls(problem, first - second, unit)

    def cost(self, parts: Vector, temperature: float) -> tuple[float, Vector]:
        """Return −g and its gradient in ``parts`` (2K,)."""
        n, K = self.slopes.shape
        values = self.problem.scores + self.slopes * (self.unit * (parts[:K] - parts[K:]))
        top = values.max(axis=1)
        values -= top[:, np.newaxis]
        values /= temperature
        np.exp(values, out=values)
        mass = values.sum(axis=1)
        total = float((top + temperature * np.log(mass)).sum()) / n
        values *= self.slopes
        slope = self.unit * ((1.0 / mass) @ values) / n
        penalty = self.problem.alpha * self.unit
        return total + float(penalty @ (parts[:K] + parts[K:])), np.concatenate([slope + penalty, penalty - slope])
