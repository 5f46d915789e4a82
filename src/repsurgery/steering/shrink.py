"""Resolve the named shrinkage choices into numbers for given moments."""

from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Label, Matrix, Rows, Vector
from repsurgery.errors import ParameterError, RowsNeededError
from repsurgery.linalg.shrinkage import (
    NO_SHRINKAGE,
    Shrinkage,
    absolute_ridge,
    oas,
    relative_ridge,
    towards_identity,
)
from repsurgery.moments import ClassMoments, Moments

__all__ = ["SeenRows", "ShrinkageName", "shrink", "shrink_classes", "shrunk_covariance"]

ShrinkageName = Literal["none", "ridge", "relative-ridge", "oas", "ledoit-wolf"]


class SeenRows:
    """The rows of one `fit` call, for what moments cannot give: Ledoit–Wolf and trained gates."""

    def __init__(self, X: Rows, codes: NDArray[np.intp], labels: list[Label], weights: Vector | None) -> None:
        self.X, self.codes, self.labels, self.weights = X, codes, labels, weights

    def of(self, label: Label) -> Rows:
        """Return the rows of one class."""
        rows: Rows = self.X[self.codes == self.labels.index(label)]
        return rows


def check_shrinkage(name: str, ridge: Any) -> None:
    """Raise `ParameterError` for an unknown name or a ridge that is not a finite number >= 0."""
    if name not in get_args(ShrinkageName):
        raise ParameterError(f"shrinkage is {name!r}; it must be one of {list(get_args(ShrinkageName))}.")
    if isinstance(ridge, bool) or not isinstance(ridge, Real) or not 0 <= float(ridge) < np.inf:
        raise ParameterError(f"ridge is {ridge!r}; it must be a finite number >= 0.")


def shrink(name: str, ridge: float, m: Moments, rows: Rows | None, *, weighted: bool = False) -> Shrinkage:
    """Return the shrinkage that ``name`` means for these moments."""
    match name:
        case "none":
            return NO_SHRINKAGE
        case "ridge":
            return absolute_ridge(ridge)
        case "relative-ridge":
            return relative_ridge(ridge, m.trace, m.dim)
        case "oas":
            return oas(m.trace, m.squared_norm, m.weight, m.dim)
    if rows is None or weighted:
        raise RowsNeededError(
            "shrinkage='ledoit-wolf' needs unweighted rows in memory: moments do not hold fourth-order sums. "
            "Use fit(X, z), or shrinkage='oas', which reads moments."
        )
    from sklearn.covariance import ledoit_wolf_shrinkage  # a tenth of a second of imports, only where it is chosen

    return towards_identity(float(ledoit_wolf_shrinkage(rows.astype(np.float64))), m.trace, m.dim)


def shrink_classes(name: str, ridge: float, moments: ClassMoments, seen: SeenRows | None) -> dict[Label, Shrinkage]:
    """Return the shrinkage of each class."""
    weighted = seen is not None and seen.weights is not None
    needs_rows = name == "ledoit-wolf" and seen is not None
    return {
        label: shrink(name, ridge, m, seen.of(label) if needs_rows and seen else None, weighted=weighted)
        for label, m in moments.items()
    }


def shrunk_covariance(m: Moments, s: Shrinkage) -> Matrix:
    """Return keep · Σ + floor · I as a new (d, d) array."""
    S = m.scatter * (s.keep / m.weight)
    S[np.diag_indices_from(S)] += s.floor
    return S
