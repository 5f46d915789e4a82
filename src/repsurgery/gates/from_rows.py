"""Gates that must see rows: logistic regression and the paper's one-hidden-layer network."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Label, Rows, Vector
from repsurgery.errors import LabelError, ParameterError, ShapeError
from repsurgery.gates.base import Gate
from repsurgery.gates.rules import ClassifierGate, LinearGate, MLPGate

__all__ = ["from_classifier", "logistic", "mlp"]


def logistic(X: Rows, codes: NDArray[np.intp], classes: tuple[Label, ...], w: Vector | None) -> LinearGate:
    """Fit logistic regression (C = 1) on standardised columns and return it as a rule on the raw ones."""
    from sklearn.linear_model import LogisticRegression  # a quarter of a second of imports, only where it is chosen

    centre, scale = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    scale[scale == 0] = 1.0
    fitted = LogisticRegression(max_iter=1000).fit((X - centre) / scale, codes, sample_weight=w)
    coef = fitted.coef_ / scale
    return LinearGate(classes, coef, fitted.intercept_ - coef @ centre)


def mlp(X: Rows, codes: NDArray[np.intp], classes: tuple[Label, ...], w: Vector | None, random_state: Any) -> MLPGate:
    """Fit the paper's concept classifier: one hidden layer of 128 ReLU units, scikit-learn's defaults."""
    from sklearn.neural_network import MLPClassifier

    fitted = MLPClassifier(hidden_layer_sizes=(128,), random_state=random_state)
    fitted.fit(X.astype(np.float64), codes, sample_weight=w)
    (hidden, readout), (hidden_bias, readout_bias) = fitted.coefs_, fitted.intercepts_
    return MLPGate(classes, hidden, hidden_bias, readout, readout_bias)


def from_classifier(classifier: Any, classes: tuple[Label, ...], dim: int) -> Gate:
    """Accept a fitted gate of these classes as it is, and any fitted object with ``predict`` as a gate."""
    if isinstance(classifier, Gate):
        _require_fit(classifier, classes, dim)
        return classifier
    if isinstance(classifier, type) or not callable(getattr(classifier, "predict", None)):
        raise ParameterError(
            f"gate is {classifier!r}; it must be 'nearest-mean', 'always', 'labels', 'logistic', 'mlp', 'lda', 'qda', "
            "a fitted gate, or a fitted classifier with predict."
        )
    return ClassifierGate(classes, classifier)


def _require_fit(gate: Gate, classes: tuple[Label, ...], dim: int) -> None:
    strangers = [label for label in gate.classes if label not in classes]
    if strangers:
        raise LabelError(
            f"The gate knows classes {list(gate.classes)}, the data {list(classes)}. Fit it on the same concept labels."
        )
    if gate.dim not in (None, dim):
        raise ShapeError(
            f"The gate reads {gate.dim} features; the data have {dim}. Fit it on vectors of the same site."
        )
