"""`Gate`: the concept-encoding function, which assigns each vector to a concept."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Label, Labels, Matrix, Rows, check_rows, require_finite, row_blocks

__all__ = ["Gate", "ScoringGate"]


class Gate(ABC):
    """Decide from a vector alone which concept it carries; the steering function asks before it touches anything."""

    __slots__ = ()
    kind: str
    classes: tuple[Label, ...]

    @abstractmethod
    def codes(self, X: Rows) -> NDArray[np.intp]:
        """Return, for checked rows (n, d), the index into ``classes`` of each row's concept (n,)."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that define this gate, by field name."""

    def predict(self, X: Any) -> Labels:
        """Return the concept assigned to each row of ``X`` (n, d), as labels (n,)."""
        rows = check_rows(X, caller=f"{type(self).__name__}.predict")
        require_finite(rows, caller=f"{type(self).__name__}.predict")
        return np.array(self.classes)[self.codes(rows)]


class ScoringGate(Gate):
    """A gate that scores every class; one score means two classes, told apart by its sign."""

    __slots__ = ()

    @abstractmethod
    def scores(self, X: Matrix) -> Matrix:
        """Return the scores (n, k), or (n, 1) for two classes, of float64 rows."""

    def codes(self, X: Rows) -> NDArray[np.intp]:
        """Return the class with the highest score; a lone score that is not negative means the second class."""
        out = np.empty(len(X), dtype=np.intp)
        for block in row_blocks(*X.shape):
            scores = self.scores(X[block].astype(np.float64))
            out[block] = scores[:, 0] >= 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
        return out


def label_tuple(labels: Sequence[Label]) -> tuple[Label, ...]:
    """Return labels as a tuple of plain Python values."""
    return tuple(np.asarray(labels).tolist())
