"""`Gate`: the concept-encoding function, which assigns each vector to a concept; and the gates by name."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Label, Labels, Matrix, Rows, check_labels, check_rows, require_finite, row_blocks
from repsurgery.cards import Card, Shown
from repsurgery.errors import LabelError, ParameterError, ShapeError
from repsurgery.gates.shown import gate_card
from repsurgery.registry import Registry

__all__ = ["GATES", "KINDS", "Gate", "ScoringGate", "check_classes"]

GATES: Registry[Callable[..., "Gate"]] = Registry("gate", home="repsurgery.gates", group="repsurgery.gates")
"""Functions that return a fitted gate; their parameters name what they read, see `build_gate`."""
KINDS: dict[str, type["Gate"]] = {}
"""The classes of gates by the kind that files name."""


class Gate(Shown, ABC):
    """Decide from a vector alone which concept it carries; a steering function asks its gate which vectors to steer.

    A subclass is written to files as its ``kind``, its ``classes`` and the arrays of `arrays`, and read back by calling
    it with the classes and these arrays. Where it also has a function ``torch_scores(X, *arrays)``, which returns the
    scores (n, k) of states (n, d) as tensors, models are steered without leaving their device.

    Attributes
    ----------
    kind : str
        The name in files; no two classes share one.
    classes : tuple of labels
    """

    __slots__ = ()
    kind: str
    classes: tuple[Label, ...]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        kind = cls.__dict__.get("kind")
        if isinstance(kind, str):
            taken = KINDS.setdefault(kind, cls)
            # a dataclass with slots is created twice; the second class is the one to keep
            if (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
                raise ParameterError(
                    f"{cls.__module__}.{cls.__qualname__} has the kind {kind!r}, as {taken.__module__}."
                    f"{taken.__qualname__} has. Give it a kind of its own."
                )
            KINDS[kind] = cls

    @abstractmethod
    def codes(self, X: Rows) -> NDArray[np.intp]:
        """Return, for checked rows (n, d), the index into ``classes`` of each row's concept (n,)."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that define this gate, by field name: those of a dataclass, apart from its classes."""
        gate: Any = self  # a gate that is not a dataclass overrides this method
        return {field.name: getattr(gate, field.name) for field in fields(gate) if field.name != "classes"}

    @property
    def dim(self) -> int | None:
        """The number of features d, or None where the gate reads any number of them."""
        return None

    def _card(self) -> Card:
        return gate_card(self)

    def predict(self, X: Any) -> Labels:
        """Return the concept assigned to each row of ``X`` (n, d), as labels (n,)."""
        rows = check_rows(X, caller=f"{type(self).__name__}.predict")
        require_finite(rows, caller=f"{type(self).__name__}.predict")
        return np.array(self.classes)[self.codes(rows)]


class ScoringGate(Gate):
    """A gate that scores every class, or two classes by the sign of one score."""

    __slots__ = ()

    @abstractmethod
    def scores(self, X: Matrix) -> Matrix:
        """Return the scores (n, k), or (n, 1) for two classes, of float64 rows."""

    def codes(self, X: Rows) -> NDArray[np.intp]:
        """Return the class with the highest score; a single score that is not negative means the second class."""
        out = np.empty(len(X), dtype=np.intp)
        for block in row_blocks(*X.shape):
            scores = self.scores(X[block].astype(np.float64))
            out[block] = scores[:, 0] >= 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
        return out


def check_classes(gate: Gate, scores: int | None = None) -> None:
    """Raise an error for invalid or repeated labels, and for a number of ``scores`` that does not match them."""
    name, labels = type(gate).__name__, list(gate.classes)
    if labels and len(check_labels(labels, len(labels), caller=name)[0]) < len(labels):
        raise LabelError(f"{name} got the classes {labels}; name each class once.")
    if scores is not None and scores != len(labels) and (scores, len(labels)) != (1, 2):
        raise ShapeError(
            f"{name} got {scores} scores for the classes {labels}; it needs one per class, or one for two classes."
        )
