"""`FairPostProcessing`: change a classifier's predictions, not the classifier, to reach parity between groups."""

import math
from numbers import Real
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from repsurgery.arrays import Labels, Matrix, as_rows, check_labels, check_rows, require_finite
from repsurgery.errors import DataError, LabelError, ParameterError, ShapeError
from repsurgery.studies.fairness.rivals.parity import Criterion, Joint, ParityProblem, adjusted, known_groups
from repsurgery.studies.fairness.rivals.parity_dual import solve_dual
from repsurgery.studies.fairness.rivals.parity_program import solve_whole

__all__ = ["ALPHAS", "FairPostProcessing", "Solver"]

Solver = Literal["auto", "linear-program", "dual"]

ALPHAS = (0.0, 0.001, 0.01, 0.05, 0.1)
"""The tolerances to report, from exact parity to almost none.

Several values are reported because on Bias in Bios the demographic-parity gap of an unprocessed classifier is about
0.09: the published alpha = 0.1 changes nothing there, and the published loss of accuracy belongs to an alpha near 0.
"""

FEW_ROWS = 5000
"""Up to this many rows "auto" solves the whole linear program; undecided groups are decided on this many rows."""
GAIN = 1e-5
"""Reward for keeping the best class where the optimum leaves a group undecided; far above the solver's 1e-9."""
SUM_TOLERANCE = 1e-6
"""Tolerance for the sum of a row of probabilities: a float32 softmax passes, a float16 one does not."""


class FairPostProcessing(BaseEstimator):
    """Shift class scores by group so that the rates of each class differ by at most ``alpha`` between groups.

    After Xian, Yin and Zhao, "Fair and optimal classification via post-processing" (2023), Algorithm 2, with the
    authors' later criterion of equal opportunity. Among all randomised predictions (γ_iy ≥ 0, Σ_y γ_iy = 1) with
    |q_ay − b_y| ≤ alpha/2 for every group a, class y and some b, ``fit`` finds those of least expected error
    (1/n) Σ_iy γ_iy (1 − s_iy). The rates q_ay are

    * "demographic-parity": (1/n_a) Σ_{i in a} γ_iy, the share of group a that is assigned class y;
    * "equal-opportunity": Σ_{i in a} s_iy γ_iy / Σ_{i in a} s_iy, the share of class y in group a that is assigned
      class y (its true-positive rate), with the scores as P(Y = y | x). Classes without mass in a group are not
      constrained.

    If the groups of the rows are given, both sums run over the rows of group a (attribute-aware). If they are not, the
    scores are joint probabilities p_iay of group and class, and the sums run over all rows, weighted by p_iay
    (attribute-blind): the scores are s_iy = Σ_a p_iay, and a row's share in group a is Σ_y p_iay.

    Predictions are deterministic: argmax_y s_y + ψ_ay, or argmax_y s_y (1 + ψ_ay) under equal opportunity, and without
    groups argmax_y s_y + Σ_a P(a) ψ_ay, or argmax_y Σ_a p_ay (1 + ψ_ay); the first class wins a tie. The few rows that
    the optimum splits between classes are assigned to one of them, so parity is missed by some rows per group, and by
    more where many rows have equal scores. Scores must be calibrated, and should come from rows that the classifier was
    not trained on.

    Under equal opportunity, a group that can exceed all others in every rate can be lowered to them in many ways of
    equal cost. Then a row that keeps its best class is rewarded by ``gain_``, which selects the solution with the
    fewest changed predictions. It is computed on about 5,000 rows; with more rows, parity holds up to that sample.

    Parameters
    ----------
    alpha : float
        Largest allowed difference of two groups' rates: 0 is exact parity, 1 or more changes nothing.
    criterion : {"demographic-parity", "equal-opportunity"}
    solver : {"auto", "linear-program", "dual"}
        "linear-program" solves for all n K couplings with HiGHS, for any number of groups. "dual", for two groups,
        finds K multipliers by smoothed ascent and solves a linear program on the rows near a tie. Both are exact.
        "auto" chooses the first for up to 5,000 rows or more than two groups.

    Attributes
    ----------
    objective_ : float
        Expected error of the optimal randomised predictions.
    gap_ : float
        ``objective_`` minus the lower bound given by its multipliers; 0 up to rounding.
    gain_ : float
        0, or 1e-5 if the optimum left a group undecided.
    offsets_ : dict of (K,) arrays
        ψ_a for each group.
    groups_ : list
        The groups, sorted; without groups their numbers.
    blind_ : bool
        Whether it was fitted, and so predicts, without groups.
    classes_ : (K,) array
        The labels that ``predict`` returns, in the order of the columns.
    solver_ : {"linear-program", "dual"}
    n_iter_ : int
        Iterations of the simplex method, and of L-BFGS-B if it ran.

    Guarantees
    ----------
    ``objective_`` is the optimum of the linear program for both solvers (test_the_objective_is_the_optimum).
    Multipliers certify it: no predictions within alpha cost less (test_the_gap_certifies_the_optimum).
    The objective never grows with alpha (test_the_objective_falls_as_alpha_grows).
    If no constraint is active, every row keeps its best class (test_a_large_alpha_changes_nothing).
    Predictions on the fitted rows have parity up to the rows that are split (test_predictions_keep_parity_up_to_ties).
    The order of rows does not matter (test_the_order_of_rows_does_not_matter).
    Joint probabilities of rows whose group is certain give what their groups give
    (test_certain_groups_need_not_be_given), and in general the optimum of the linear program
    (test_without_groups_the_objective_is_the_optimum).

    Examples
    --------
    >>> import numpy as np
    >>> from repsurgery.baselines import FairPostProcessing
    >>> scores = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
    >>> group = ["a", "a", "b", "b"]
    >>> post = FairPostProcessing(alpha=0.0).fit(scores, group)
    >>> round(post.objective_, 6), post.predict(scores, group).tolist()
    (0.35, [0, 0, 0, 0])
    """

    def __init__(
        self, *, alpha: float = 0.0, criterion: Criterion = "demographic-parity", solver: Solver = "auto"
    ) -> None:
        self.alpha = alpha
        self.criterion = criterion
        self.solver = solver

    def fit(self, scores: Any, group: Any = None, *, classes: Any = None) -> Self:
        """Find the offsets.

        Parameters
        ----------
        scores : (n, K) array-like, or (n, groups, K) array-like without ``group``
            Class probabilities, or joint probabilities of group and class; those of a row sum to 1.
        group : (n,) labels, or None
            Two or more groups; None for post-processing without groups (attribute-blind).
        classes : (K,) labels, or None
            Names of the columns, which ``predict`` returns; None means the numbers 0 … K − 1.
        """
        self._require_parameters()
        joint, groups = _joint(scores, group, caller="FairPostProcessing.fit")
        if len(groups) < 2:
            raise LabelError(
                f"FairPostProcessing.fit got one group only, {groups[0]!r}; parity needs two or more. "
                "Pass rows of another group."
            )
        names = _names(classes, joint.shape[2])
        solver = self._choose(joint.shape[1], len(groups))
        problem = ParityProblem.of(joint, alpha=float(self.alpha), criterion=self.criterion)
        program = solve_dual(problem) if solver == "dual" else solve_whole(problem)
        self.objective_ = program.objective
        self.gap_ = program.objective - problem.dual_value(program.mu)
        psi = problem.factors * program.mu
        undecided = problem.undecided(program.mu)
        self.gain_ = GAIN if undecided.any() else 0.0
        if undecided.any():
            few = problem.thinned(FEW_ROWS, gain=GAIN)
            psi[undecided] = (few.factors * solve_whole(few).mu)[undecided]
        self.offsets_ = dict(zip(groups, psi, strict=True))
        self.groups_ = groups
        self.blind_ = group is None
        self.classes_ = names
        self.solver_ = solver
        self.n_iter_ = program.n_iter
        return self

    def predict(self, scores: Any, group: Any = None) -> Labels:
        """Return one of ``classes_`` per row.

        Parameters
        ----------
        scores : (n, K) array-like, or (n, groups, K) array-like without ``group``
            Probabilities from the classifier used in ``fit``.
        group : (n,) labels, or None
            True or predicted groups, each of which must have occurred in ``fit``; None if ``fit`` got none.
        """
        check_is_fitted(self, "offsets_")
        if (group is None) != self.blind_:
            raise LabelError(
                f"FairPostProcessing.predict got {'no ' if group is None else ''}groups, and fit "
                f"{'none' if self.blind_ else 'some'}. Pass groups to both, or joint probabilities to both."
            )
        joint, groups = _joint(scores, group, caller="FairPostProcessing.predict")
        if joint.shape[2] != len(self.classes_):
            raise ShapeError(
                f"FairPostProcessing.predict got {joint.shape[2]} classes; it was fitted on {len(self.classes_)}. "
                "Pass scores of the classifier used for fitting, or fit again."
            )
        unseen = [label for label in groups if label not in self.offsets_]
        if unseen:
            raise LabelError(
                f"FairPostProcessing.predict got groups {unseen}; it was fitted on {self.groups_}. "
                "Drop those rows, or fit on all groups."
            )
        psi = np.array([self.offsets_[label] for label in groups])
        chosen: NDArray[np.intp] = adjusted(joint, psi, self.criterion, gain=self.gain_).argmax(axis=1)
        names: Labels = self.classes_[chosen]
        return names

    def _require_parameters(self) -> None:
        if isinstance(self.alpha, bool) or not isinstance(self.alpha, Real) or math.isnan(self.alpha) or self.alpha < 0:
            raise ParameterError(f"FairPostProcessing got alpha={self.alpha!r}; it must be a number of at least 0.")
        for name, allowed in (("criterion", get_args(Criterion)), ("solver", get_args(Solver))):
            if getattr(self, name) not in allowed:
                raise ParameterError(
                    f"FairPostProcessing got {name}={getattr(self, name)!r}; it must be one of {', '.join(allowed)}."
                )

    def _choose(self, n: int, groups: int) -> Literal["linear-program", "dual"]:
        if self.solver == "dual" and groups > 2:
            raise ParameterError(
                f'FairPostProcessing got solver="dual" and {groups} groups; the dual is for two. '
                'Use solver="linear-program" or "auto".'
            )
        if self.solver == "auto":
            return "linear-program" if n <= FEW_ROWS or groups > 2 else "dual"
        return self.solver


def _joint(scores: Any, group: Any, *, caller: str) -> tuple[Joint, list[Any]]:
    """Return probabilities (groups, n, K) and the names of the groups, numbers if there is no ``group``."""
    if group is not None:
        S = _probabilities(scores, caller=caller)
        groups, codes = check_labels(group, len(S), caller=caller)
        return known_groups(S, codes, len(groups)), groups
    P = np.asarray(as_rows(scores))
    if P.ndim != 3:
        raise ShapeError(
            f"{caller} got scores of shape {P.shape} and no groups; without groups it needs joint probabilities "
            "(n, groups, K). Pass them, or the groups."
        )
    n, groups_count, K = P.shape
    rows = _probabilities(P.reshape(n, groups_count * K), caller=caller)
    return np.ascontiguousarray(rows.reshape(P.shape).transpose(1, 0, 2)), list(range(groups_count))


def _probabilities(scores: Any, *, caller: str) -> Matrix:
    rows = check_rows(scores, caller=caller)
    require_finite(rows, caller=caller)
    if rows.shape[1] < 2:
        raise ShapeError(f"{caller} got scores of one class; it needs (n, K) probabilities of two classes or more.")
    S = rows.astype(np.float64)
    sums = S.sum(axis=1)
    bad = np.flatnonzero((S < 0).any(axis=1) | (np.abs(sums - 1.0) > SUM_TOLERANCE))
    if len(bad):
        raise DataError(
            f"{caller} got scores that are not probabilities, first in row {bad[0]}: smallest {S[bad[0]].min():g}, "
            f"sum {sums[bad[0]]:g}. Pass entries of at least 0 and rows that sum to 1, as returned by predict_proba."
        )
    return S


def _names(classes: Any, K: int) -> Labels:
    if classes is None:
        return np.arange(K)
    names = np.asarray(as_rows(classes))
    if names.shape != (K,) or len(set(names.tolist())) != K:
        raise LabelError(
            f"FairPostProcessing.fit got classes {names.tolist()}; it needs {K} different names, one per column."
        )
    return names
