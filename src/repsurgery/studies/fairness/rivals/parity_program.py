"""The linear program of parity, over all columns (row, class) or over some of them."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, vstack

from repsurgery.arrays import Mask, Matrix, Vector
from repsurgery.errors import DataError
from repsurgery.studies.fairness.rivals.parity import ParityProblem

__all__ = ["Program", "solve_program", "solve_whole"]

Indices: TypeAlias = NDArray[np.intp]

SMALLEST_TOLERANCE = 1e-9
"""Tolerance of HiGHS for a reduced cost; all costs are of order 1."""
RATE_TOLERANCE = 1e-11
"""Tolerance for a rate: sums over n rows are rounded, and with alpha = 0 the parity rows are linearly dependent."""


@dataclass(frozen=True, slots=True)
class Program:
    """The optimal cost, the multipliers μ (groups, K) that certify it, and the number of simplex iterations.

    ``excess`` is the total violation of the rates, in rows: 0 unless the multipliers were restricted to a box.
    """

    objective: float
    excess: float
    mu: Matrix
    n_iter: int


def solve_program(problem: ParityProblem, columns: Mask, *, box: tuple[Matrix, Matrix] | None = None) -> Program:
    """Return the optimum over couplings that vanish outside ``columns`` (n, K), at least one of them in each row.

    A ``box``, the smallest and the largest μ (groups, K), restricts the multipliers by allowing rates to violate
    parity at a price given by its sides; with few columns parity may be infeasible otherwise. Without a box parity is a
    hard constraint, which is feasible if all columns take part.
    """
    rows, classes = np.nonzero(columns)
    n = len(problem.scores)
    parity, slack, r = _parity_rows(problem, rows, classes)
    both = vstack([parity, -parity])
    cost = np.concatenate([1.0 - problem.gains()[rows, classes], np.zeros(parity.shape[1] - len(rows))])
    violations = 0
    if box is not None:
        least, greatest = (side[problem.bound] / r for side in box)
        more = vstack([eye_array(len(r)), -eye_array(len(r))])
        both = hstack([both, more, -more])
        cost = np.concatenate([cost, greatest, -least])
        violations = 2 * len(r)
    result = linprog(
        cost,
        A_ub=both,
        b_ub=np.concatenate([slack, slack]),
        A_eq=csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), shape=(n, both.shape[1])),
        b_eq=np.ones(n),
        method="highs",
        options={
            "primal_feasibility_tolerance": max(SMALLEST_TOLERANCE, RATE_TOLERANCE * n),
            "dual_feasibility_tolerance": SMALLEST_TOLERANCE,
        },
    )
    if result.status != 0:
        raise DataError(
            f"HiGHS did not solve the program of parity: {result.message} Raise alpha or merge rare classes."
        )
    upper, lower = np.split(result.ineqlin.marginals, 2)
    mu = np.zeros_like(problem.factors)
    mu[problem.bound] = (upper - lower) * r
    excess = float(result.x[len(cost) - violations :].sum())
    return Program(float(result.fun) / n, excess, _balanced(mu, problem.bound), int(result.nit))


def solve_whole(problem: ParityProblem) -> Program:
    """Return the optimum over all couplings; assigning one class to every row is always feasible."""
    return solve_program(problem, np.ones(problem.scores.shape, dtype=np.bool_))


def _parity_rows(problem: ParityProblem, rows: Indices, classes: Indices) -> tuple[csr_array, Vector, Vector]:
    """Return n r_y (q_ay − b_y) as rows over γ and n r_y b_y, the right-hand sides n r_y α/2, and each row's r_y.

    r_y makes the largest coefficient of a class 1: the tolerances of HiGHS are absolute.
    """
    n, K = problem.scores.shape
    rates = problem.factors[:, classes] * problem.weights[:, rows, classes]
    largest = np.zeros(K)
    np.maximum.at(largest, classes, rates.max(axis=0))
    r = np.divide(1.0, largest, out=np.ones(K), where=largest > 0)
    groups, columns = np.nonzero(rates)
    couplings = csr_array(
        (rates[groups, columns] * r[classes[columns]], (groups * K + classes[columns], columns)),
        shape=(problem.factors.size, len(rows)),
    )
    centres = vstack([-eye_array(K)] * len(problem.factors))
    bound = np.flatnonzero(problem.bound)
    parity = csr_array(hstack([couplings, centres], format="csr")[bound])
    return parity, problem.alpha / 2 * n * r[bound % K], r[bound % K]


def _balanced(mu: Matrix, bound: Mask) -> Matrix:
    """Return ``mu`` with the rounding errors removed from its sums over groups, which are 0."""
    groups = bound.sum(axis=0)
    excess = np.divide(mu.sum(axis=0), groups, out=np.zeros(mu.shape[1]), where=groups > 0)
    return np.where(bound, mu - excess, 0.0)
