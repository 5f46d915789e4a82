"""`SoftGate`: steer each vector as strongly as a linear score of it says."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Label, Matrix, Rows, Vector, check_rows, require_finite, row_blocks
from repsurgery.errors import LabelError, ParameterError, ShapeError
from repsurgery.gates.base import Gate, check_classes
from repsurgery.gates.rules import LinearGate, freeze_arrays

__all__ = ["SoftGate", "calibrate_soft_gate"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class SoftGate(Gate):
    """Steer h to h + s(g·h + c) (T(h) − h), where the strength s is a monotone function of the score.

    s is piecewise linear: it passes through the points (knots[i], strengths[i]), in order, and is constant beyond the
    first and the last one. Two equal knots make a jump; at the knot itself the later strength counts, so that a jump
    from 0 to 1 at 0 is the decision of a `LinearGate`. A steering function with this gate has one map.

    Attributes
    ----------
    classes : two labels
        As in `LinearGate`, a score that is not negative stands for the second class. `predict` returns these classes;
        the strength does not depend on them.
    coef : (1, d) array
    intercept : (1,) array
    knots : (m,) array, sorted
    strengths : (m,) array, rising or falling, none negative

    Guarantees
    ----------
    With strength 1 everywhere it is the gate "always" (test_a_constant_strength_of_one_is_the_gate_always).
    With a jump from 0 to 1 it is the linear gate (test_a_jump_is_the_linear_gate).
    The strength is monotone in the score (test_the_strength_is_monotone_in_the_score).
    Models are steered as rows are (test_soft_steering_of_a_model_is_that_of_its_rows).
    """

    classes: tuple[Label, ...]
    coef: Matrix
    intercept: Vector
    knots: Vector
    strengths: Vector
    kind = "soft"

    def __post_init__(self) -> None:
        freeze_arrays(self)
        if self.coef.ndim != 2 or len(self.coef) != 1 or self.intercept.shape != (1,):
            raise ShapeError(
                f"SoftGate got coef {self.coef.shape} and intercept {self.intercept.shape}; it needs one score: coef "
                "(1, d) and intercept (1,)."
            )
        if self.knots.ndim != 1 or self.knots.shape != self.strengths.shape or not len(self.knots):
            raise ShapeError(
                f"SoftGate got knots {self.knots.shape} and strengths {self.strengths.shape}; it needs one strength "
                "for each of at least one knot."
            )
        check_classes(self, 1)
        changes = np.diff(self.strengths)
        finite = all(np.isfinite(array).all() for array in self.arrays().values())
        if not finite or (np.diff(self.knots) < 0).any() or not ((changes >= 0).all() or (changes <= 0).all()):
            raise ParameterError(
                f"SoftGate got knots {self.knots.tolist()} and strengths {self.strengths.tolist()}; knots must be "
                "finite and sorted, and strengths must only rise or only fall."
            )
        if (self.strengths < 0).any():
            raise ParameterError(
                f"SoftGate got strengths {self.strengths.tolist()}; a strength is not negative. Use 0 to leave vectors "
                "unchanged."
            )

    @property
    def dim(self) -> int:  # noqa: D102 - documented on Gate, as below
        return int(self.coef.shape[1])

    def scores(self, X: Matrix) -> Vector:
        """Return the score (n,) of float64 rows."""
        return (X @ self.coef.T + self.intercept)[:, 0]

    def strength(self, X: Rows) -> Vector:
        """Return the strength (n,) with which checked rows (n, d) are steered."""
        out = np.empty(len(X))
        for block in row_blocks(*X.shape):
            out[block] = self._at(self.scores(X[block].astype(np.float64)))
        return out

    def weights(self, X: Rows) -> Matrix:  # noqa: D102
        return self.strength(X)[:, None]

    def codes(self, X: Rows) -> NDArray[np.intp]:  # noqa: D102
        out = np.empty(len(X), dtype=np.intp)
        for block in row_blocks(*X.shape):
            out[block] = self.scores(X[block].astype(np.float64)) >= 0
        return out

    def _at(self, scores: Vector) -> Vector:
        # the knot before a score and the one after it; they are equal beyond the ends
        after = np.searchsorted(self.knots, scores, side="right")
        i, j = np.maximum(after - 1, 0), np.minimum(after, len(self.knots) - 1)
        width = self.knots[j] - self.knots[i]
        share = np.where(width > 0, (scores - self.knots[i]) / np.where(width > 0, width, 1.0), 0.0)
        strengths: Vector = self.strengths[i] + share * (self.strengths[j] - self.strengths[i])
        return strengths


def calibrate_soft_gate(
    gate: LinearGate, X: Any, *, source: Label, low: float = 0.5, high: float = 0.95, most: float = 1.0
) -> SoftGate:
    """Return a gate whose strength rises from 0 to ``most`` between two quantiles of the scores of the rows ``X``.

    Pass steps of the model itself that are not of the source, such as those of its clean texts (`lm.on_policy`,
    `lm.states_along`). They are plentiful where steps of the source are rare, and they are the steps that steering
    should spare: the quantiles state beforehand how many of them are steered, and how strongly.

    Parameters
    ----------
    gate : LinearGate
        A gate of two classes.
    X : (n, d) array
    source : label
        The class to steer: the strength rises towards it.
    low, high : float
        Quantiles between 0 and 1. About the share 1 − ``low`` of the rows is steered at all, and about the share
        1 − ``high`` with full strength. A quantile lies on a row or between two, so up to one row more is possible.
    most : float
        The greatest strength.

    Guarantees
    ----------
    Of n rows without equal scores at most (1 − low) n + 1 are steered, and at most (1 − high) n + 1 with full strength
    (test_a_calibrated_soft_gate_steers_the_stated_shares).

    Examples
    --------
    >>> import numpy as np
    >>> import repsurgery as rs
    >>> X, z = np.array([[0.0], [1.0], [9.0], [10.0]]), ["clean", "clean", "toxic", "toxic"]
    >>> gate = rs.calibrate_soft_gate(
    ...     rs.build_gate("nearest-mean", X, z), np.arange(5.0)[:, None], source="toxic", low=0.5, high=1.0
    ... )
    >>> gate.strength(np.array([[1.0], [3.0], [9.0]])).tolist()
    [0.0, 0.5, 1.0]
    """
    if not isinstance(gate, LinearGate) or len(gate.coef) != 1:
        raise ParameterError(
            f"calibrate_soft_gate got a {type(gate).__name__} of {len(gate.classes)} classes; it needs a linear gate "
            "of two classes, such as build_gate('lda', ...)."
        )
    if source not in gate.classes:
        raise LabelError(f"source is {source!r}; the classes of the gate are {list(gate.classes)}.")
    if not 0 <= low <= high <= 1:
        raise ParameterError(f"low is {low!r} and high is {high!r}; they must satisfy 0 <= low <= high <= 1.")
    if not 0 < most < float("inf"):
        raise ParameterError(f"most is {most!r}; it must be a positive number, the greatest strength.")
    rows = check_rows(X, dim=gate.dim, caller="calibrate_soft_gate")
    require_finite(rows, caller="calibrate_soft_gate")
    scores = gate.scores(np.asarray(rows, dtype=np.float64))[:, 0]
    if source == gate.classes[1]:
        knots, strengths = np.quantile(scores, [low, high]), [0.0, most]
    else:
        knots, strengths = np.quantile(scores, [1 - high, 1 - low]), [most, 0.0]
    return SoftGate(gate.classes, gate.coef, gate.intercept, knots, np.array(strengths))
