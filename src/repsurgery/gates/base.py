"""`Gate`: the concept-encoding function, which assigns each vector to a concept."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Label, Labels, Matrix, Rows, check_labels, check_rows, require_finite, row_blocks
from repsurgery.errors import LabelError, ShapeError

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

    @property
    def dim(self) -> int | None:
        """The number of features d, or None where the gate reads any number of them."""
        return None

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


def check_classes(gate: Gate, scores: int | None = None) -> None:
    """Refuse labels that are none, or not told apart, and another number of ``scores`` than there are classes."""
    name, labels = type(gate).__name__, list(gate.classes)
    if labels and len(check_labels(labels, len(labels), caller=name)[0]) < len(labels):
        raise LabelError(f"{name} got the classes {labels}; each may be named once.")
    if scores is not None and scores != len(labels) and (scores, len(labels)) != (1, 2):
        raise ShapeError(f"{name} got {scores} scores for the classes {labels}; it needs one each, or one for two.")


def label_tuple(labels: Sequence[Label]) -> tuple[Label, ...]:
    """Return labels as a tuple of plain Python values."""
    return tuple(np.asarray(labels).tolist())
