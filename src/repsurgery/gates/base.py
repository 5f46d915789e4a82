"""`Gate`: the concept-encoding function, which assigns each vector to a concept; and the gates by name."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import fields
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Label, Labels, Matrix, Rows, check_labels, check_rows, require_finite, row_blocks
from repsurgery.cards import Card, Shown
from repsurgery.errors import LabelError, ParameterError, ShapeError
from repsurgery.gates.shown import gate_card
from repsurgery.registry import Registry

__all__ = ["GATES", "KINDS", "Gate", "ScoringGate", "check_classes", "checked_weights", "columns_of", "require_weights"]

GATES: Registry[Callable[..., "Gate"]] = Registry("gate", home="repsurgery.gates", group="repsurgery.gates")
"""Functions that return a fitted gate; their parameters name what they read, see `build_gate`."""
KINDS: dict[str, type["Gate"]] = {}
"""The classes of gates by the kind that files name."""


class Gate(Shown, ABC):
    """Decide from a vector alone how strongly each map steers it; a steering function asks its gate.

    A hard gate assigns each vector to one class: it defines `codes`, and the map of that class steers the vector. A
    soft gate defines `weights`, one for each class, or a single one for a function of one map. A subclass is written to
    files as its ``kind``, its ``classes`` and the arrays of `arrays`, and read back by calling it with the classes and
    these arrays. A static method ``torch_scores(X, *arrays)`` of a hard gate, or ``torch_weights(X, *arrays)`` of a
    soft one, returns the scores or weights (n, k) of states (n, d) as tensors; models are then steered without leaving
    their device.

    Attributes
    ----------
    kind : str
        The name in files; no two classes share one.
    classes : tuple of labels
    reads : {"rows", "labels", "nothing"}
        What decides: each vector, the labels that a call passes, or nothing, because every vector is steered.

    Guarantees
    ----------
    The weights of a hard gate are one-hot (test_the_weights_of_a_hard_gate_are_one_hot).
    A soft gate of a new kind works wherever ours do (test_a_soft_gate_from_the_guide_steers_a_model_as_its_rows).
    """

    __slots__ = ()
    kind: str
    classes: tuple[Label, ...]
    reads: ClassVar[Literal["rows", "labels", "nothing"]] = "rows"

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
            if cls.codes is Gate.codes and cls.weights is Gate.weights:
                del KINDS[kind]
                raise ParameterError(
                    f"{cls.__module__}.{cls.__qualname__} defines neither codes(X) nor weights(X). A hard gate needs "
                    "codes, a soft one weights."
                )
            KINDS[kind] = cls

    def codes(self, X: Rows) -> NDArray[np.intp]:
        """Return, for checked rows (n, d), the index into ``classes`` of each row's concept (n,).

        Of a gate that defines only `weights`, the class of the greatest weight.
        """
        codes: NDArray[np.intp] = checked_weights(self, X).argmax(axis=1)
        return codes

    def weights(self, X: Rows) -> Matrix:
        """Return, for checked rows (n, d), how strongly the map of each class steers each row.

        Returns
        -------
        (n, len(classes)) array, or (n, 1) for a gate of one map
            Never negative. Of a gate that defines only `codes`, 1 for the class of a row and 0 for the others; of one
            that reads nothing, 1 for every row.
        """
        if self.reads == "nothing":
            return np.ones((len(X), 1))
        W = np.zeros((len(X), len(self.classes)))
        W[np.arange(len(X)), self.codes(X)] = 1.0
        return W

    @property
    def hard(self) -> bool:
        """Whether the weights say no more than `codes`: true unless the class defines `weights`.

        A steering function then maps the rows of each class, and returns the others bit for bit.
        """
        weights = type(self).weights
        # a field of this name, in a gate that was written before there were weights, is no method
        return weights is Gate.weights or not callable(weights)

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


def checked_weights(gate: Gate, X: Rows) -> Matrix:
    """Return the `Gate.weights` of checked rows (n, d), or raise an error where they break the protocol."""
    W = np.asarray(gate.weights(X), dtype=np.float64)
    require_weights(gate, W.shape, len(X), valid=bool(((W >= 0) & np.isfinite(W)).all()))
    return W


def require_weights(gate: Gate, shape: tuple[int, ...], n: int, *, valid: bool) -> None:
    """Raise an error where a gate returned weights of this ``shape`` for ``n`` rows, and where they are not valid."""
    if shape not in ((n, len(gate.classes)), (n, 1)):
        raise ShapeError(
            f"{type(gate).__name__} returned weights of shape {shape} for {n} rows; it must return one weight per "
            f"class, {(n, len(gate.classes))}, or {(n, 1)} for a function of one map."
        )
    if not valid:
        raise ParameterError(
            f"{type(gate).__name__} returned weights that are negative, infinite or NaN. Return 0 for rows to leave "
            "unchanged, and positive numbers for the others."
        )


def columns_of(classes: tuple[Label, ...], labels: Collection[Label | None]) -> Matrix:
    """Return S (len(classes), len(labels)), so that the weights W (n, len(classes)) give W @ S, those of the maps.

    The map of a label takes the weight of that class, the map under None, which serves every class, their sum. So
    behind a hard gate its weight is 1.
    """
    return np.array([[label is None or label == name for name in classes] for label in labels], dtype=np.float64).T


def check_classes(gate: Gate, scores: int | None = None) -> None:
    """Raise an error for invalid or repeated labels, and for a number of ``scores`` that does not match them."""
    name, labels = type(gate).__name__, list(gate.classes)
    if labels and len(check_labels(labels, len(labels), caller=name)[0]) < len(labels):
        raise LabelError(f"{name} got the classes {labels}; name each class once.")
    if scores is not None and scores != len(labels) and (scores, len(labels)) != (1, 2):
        raise ShapeError(
            f"{name} got {scores} scores for the classes {labels}; it needs one per class, or one for two classes."
        )
