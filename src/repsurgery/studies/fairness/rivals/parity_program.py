"""The linear program of parity, over all columns (row, class) or over a chosen few."""

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
"""Slack HiGHS may leave in a reduced cost; all costs are of order 1."""
RATE_TOLERANCE = 1e-11
"""Slack in a rate. Sums over n fixed rows round, and with alpha = 0 the parity rows depend on each other."""


@dataclass(frozen=True, slots=True)
class Program:
    """The optimal cost, the multipliers μ (groups, K) that prove it, and the simplex steps it took.

    ``excess`` is the sum of what rates were allowed to miss, counted in rows: 0 unless multipliers were confined.
    """

    objective: float
    excess: float
    mu: Matrix
    n_iter: int


def solve_program(problem: ParityProblem, columns: Mask, *, box: tuple[Matrix, Matrix] | None = None) -> Program:
    """Return the optimum over couplings that vanish outside ``columns`` (n, K), at least one of them in each row.

    A ``box``, the least and the greatest μ (groups, K), is kept to by letting rates miss parity at the price of its
    sides: few columns may leave no other way. Without it parity is a constraint, which all columns can meet.
    """
    rows, classes = np.nonzero(columns)
    n = len(problem.scores)
    parity, slack, r = _parity_rows(problem, rows, classes)
    both = vstack([parity, -parity])
    cost = np.concatenate([1.0 - problem.gains()[rows, classes], np.zeros(parity.shape[1] - len(rows))])
    misses = 0
    if box is not None:
        least, greatest = (side[problem.bound] / r for side in box)
        more = vstack([eye_array(len(r)), -eye_array(len(r))])
        both = hstack([both, more, -more])
        cost = np.concatenate([cost, greatest, -least])
        misses = 2 * len(r)
    found = linprog(
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
    if found.status != 0:
        raise DataError(
            f"HiGHS did not solve the program of parity: {found.message} Raise alpha or merge rare classes."
        )
    upper, lower = np.split(found.ineqlin.marginals, 2)
    mu = np.zeros_like(problem.factors)
    mu[problem.bound] = (upper - lower) * r
    excess = float(found.x[len(cost) - misses :].sum())
    return Program(float(found.fun) / n, excess, _balanced(mu, problem.bound), int(found.nit))


def solve_whole(problem: ParityProblem) -> Program:
    """Return the optimum over all couplings; giving everybody one class is always feasible."""
    return solve_program(problem, np.ones(problem.scores.shape, dtype=np.bool_))


def _parity_rows(problem: ParityProblem, rows: Indices, classes: Indices) -> tuple[csr_array, Vector, Vector]:
    """Return n r_y (q_ay − b_y) as rows over γ and n r_y b_y, the right-hand sides n r_y α/2, and each row's r_y.

    r_y makes the largest coefficient of a class 1: the tolerances of HiGHS are absolute.
    """
    n, K = problem.scores.shape
    at = problem.codes[rows] * K + classes
    rates = problem.factors.ravel()[at] * problem.weights()[rows, classes]
    largest = np.zeros(K)
    np.maximum.at(largest, classes, rates)
    r = np.divide(1.0, largest, out=np.ones(K), where=largest > 0)
    couplings = csr_array((rates * r[classes], (at, np.arange(len(rows)))), shape=(problem.factors.size, len(rows)))
    centres = vstack([-eye_array(K)] * len(problem.factors))
    kept = np.flatnonzero(problem.bound)
    parity = csr_array(hstack([couplings, centres], format="csr")[kept])
    return parity, problem.alpha / 2 * n * r[kept % K], r[kept % K]


def _balanced(mu: Matrix, bound: Mask) -> Matrix:
    """Return ``mu`` with rounding taken out of its sums over groups, which are 0."""
    held = bound.sum(axis=0)
    excess = np.divide(mu.sum(axis=0), held, out=np.zeros(mu.shape[1]), where=held > 0)
    return np.where(bound, mu - excess, 0.0)
