"""The classes of gates: always, by labels, linear, quadratic, one hidden layer, and any fitted classifier."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Label, Matrix, Rows, Vector, freeze
from repsurgery.errors import FileFormatError, LabelError, ShapeError
from repsurgery.gates.base import GATES, KINDS, Gate, ScoringGate, check_classes

__all__ = [
    "AlwaysGate",
    "ClassifierGate",
    "LabelsGate",
    "LinearGate",
    "MLPGate",
    "QuadraticGate",
    "freeze_arrays",
    "gate_from_arrays",
]


def freeze_arrays(gate: Gate) -> None:
    """Replace the arrays of a frozen gate by read-only float64 views."""
    for name, array in gate.arrays().items():
        object.__setattr__(gate, name, freeze(np.asarray(array, dtype=np.float64)))


@final
@GATES.register("always")
@dataclass(frozen=True, slots=True)
class AlwaysGate(Gate):
    """Steer every vector, whatever its concept."""

    classes: tuple[Label, ...] = ()
    kind = "always"
    reads = "nothing"

    def __post_init__(self) -> None:
        check_classes(self)

    def codes(self, X: Rows) -> NDArray[np.intp]:  # noqa: D102 - documented on Gate, as below
        return np.zeros(len(X), dtype=np.intp)


@final
@dataclass(frozen=True, slots=True)
class LabelsGate(Gate):
    """Steer by the labels that a call passes; without labels it raises an error."""

    classes: tuple[Label, ...] = ()
    kind = "labels"
    reads = "labels"

    def __post_init__(self) -> None:
        check_classes(self)

    def codes(self, X: Rows) -> NDArray[np.intp]:  # noqa: D102
        raise LabelError(
            "This steering function has gate='labels', and the call passed no labels. "
            "Pass concept=z, or fit with a gate that reads vectors, such as 'nearest-mean'."
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class LinearGate(ScoringGate):
    """Score rows by X @ coef.T + intercept, the form of nearest mean, LDA and logistic regression.

    Attributes
    ----------
    classes : labels, sorted
    coef : (k, d) array, or (1, d) for two classes
    intercept : (k,) or (1,) array
    """

    classes: tuple[Label, ...]
    coef: Matrix
    intercept: Vector
    kind = "linear"

    def __post_init__(self) -> None:
        freeze_arrays(self)
        if self.coef.ndim != 2 or self.intercept.shape != (len(self.coef),):
            raise ShapeError(f"LinearGate got coef {self.coef.shape} and intercept {self.intercept.shape}.")
        check_classes(self, len(self.coef))

    @property
    def dim(self) -> int:  # noqa: D102
        return int(self.coef.shape[1])

    def scores(self, X: Matrix) -> Matrix:  # noqa: D102
        return X @ self.coef.T + self.intercept


@final
@dataclass(frozen=True, slots=True, eq=False)
class QuadraticGate(ScoringGate):
    """Score rows by the Gaussian log-posteriors −½‖A_c (x − μ_c)‖² + constant_c, with A_cᵀA_c = Σ_c⁻¹.

    Attributes
    ----------
    means : (k, d) array
    whiteners : (k, d, d) array
    constants : (k,) array
    """

    classes: tuple[Label, ...]
    means: Matrix
    whiteners: NDArray[np.float64]
    constants: Vector
    kind = "quadratic"

    def __post_init__(self) -> None:
        freeze_arrays(self)
        k, d = self.means.shape if self.means.ndim == 2 else (0, 0)
        if k == 0 or self.whiteners.shape != (k, d, d) or self.constants.shape != (k,):
            raise ShapeError(f"QuadraticGate got means {self.means.shape}, whiteners {self.whiteners.shape}.")
        check_classes(self, k)

    @property
    def dim(self) -> int:  # noqa: D102
        return int(self.means.shape[1])

    def scores(self, X: Matrix) -> Matrix:  # noqa: D102
        pairs = zip(self.means, self.whiteners, strict=True)
        squares = [np.square((X - mean) @ A.T).sum(axis=1) for mean, A in pairs]
        return self.constants - 0.5 * np.stack(squares, axis=1)


@final
@dataclass(frozen=True, slots=True, eq=False)
class MLPGate(ScoringGate):
    """Score rows by a network with one hidden layer of ReLU units, the paper's concept classifier.

    Attributes
    ----------
    hidden, hidden_bias : (d, 128), (128,) arrays
    readout, readout_bias : (128, k or 1), (k or 1,) arrays
    """

    classes: tuple[Label, ...]
    hidden: Matrix
    hidden_bias: Vector
    readout: Matrix
    readout_bias: Vector
    kind = "mlp"

    def __post_init__(self) -> None:
        freeze_arrays(self)
        units = self.hidden_bias.shape
        chained = self.hidden.shape[1:] == units and self.readout.shape == units + self.readout_bias.shape
        if not chained or self.hidden.ndim != 2 or self.readout.ndim != 2:
            raise ShapeError(f"MLPGate got hidden {self.hidden.shape} and readout {self.readout.shape}.")
        check_classes(self, len(self.readout_bias))

    @property
    def dim(self) -> int:  # noqa: D102
        return int(self.hidden.shape[0])

    def scores(self, X: Matrix) -> Matrix:  # noqa: D102
        return np.maximum(X @ self.hidden + self.hidden_bias, 0.0) @ self.readout + self.readout_bias


@final
@dataclass(frozen=True, slots=True, eq=False)
class ClassifierGate(Gate):
    """Ask any fitted classifier with ``predict``. This gate cannot be written to a file."""

    classes: tuple[Label, ...]
    classifier: Any
    kind = "classifier"

    def codes(self, X: Rows) -> NDArray[np.intp]:  # noqa: D102
        predicted = np.asarray(self.classifier.predict(X)).tolist()
        index = {label: code for code, label in enumerate(self.classes)}
        try:
            return np.array([index[label] for label in predicted], dtype=np.intp)
        except KeyError as error:
            raise LabelError(
                f"The gate predicted {error.args[0]!r}; the classes are {list(self.classes)}. "
                "Train it on the same concept labels."
            ) from None

    def arrays(self) -> dict[str, NDArray[Any]]:  # noqa: D102
        raise FileFormatError(
            f"A gate made from {type(self.classifier).__name__} cannot be saved without pickle. "
            "Fit with gate='logistic', 'mlp', 'lda', 'qda' or 'nearest-mean', which can."
        )


def gate_from_arrays(kind: str, classes: tuple[Label, ...], arrays: dict[str, NDArray[Any]]) -> Gate:
    """Return the gate that a file describes by its ``kind``, classes and `Gate.arrays`."""
    if kind not in KINDS:
        list(GATES)  # importing the modules of gates and the plugins defines their kinds
    if kind not in KINDS or kind == ClassifierGate.kind:
        raise FileFormatError(
            f"The file holds a gate of the kind {kind!r}, which neither repsurgery nor an installed plugin defines. "
            "Install the package that defines it, or upgrade repsurgery."
        )
    gate: Gate = KINDS[kind](classes, **arrays)  # type: ignore[call-arg]  # subclasses take their arrays by name
    return gate
