"""Gates that are trained on rows: logistic regression and the paper's one-hidden-layer network."""

from typing import Any

import numpy as np

from repsurgery.gates.base import GATES
from repsurgery.gates.rules import LinearGate, MLPGate
from repsurgery.moments.shrinkage import FitRows

__all__ = ["logistic", "mlp"]


@GATES.register("logistic")
def logistic(rows: FitRows) -> LinearGate:
    """Fit logistic regression (C = 1) on standardised columns and return it as a rule on the raw ones.

    Guarantees
    ----------
    A constant column does not enter (test_a_constant_column_does_not_enter_logistic_regression), and a weight of 2 is a
    row twice (test_a_weight_of_two_is_a_row_twice_for_logistic_regression).
    """
    from sklearn.linear_model import LogisticRegression  # a quarter of a second of imports, only where it is chosen

    rows = rows.counted()
    # relative to one of the rows, so that a constant column has a spread of exactly zero
    first = rows.X[0].astype(np.float64)
    Z = rows.X - first
    shift = np.average(Z, axis=0, weights=rows.weights)
    Z -= shift
    scale = np.sqrt(np.average(np.square(Z), axis=0, weights=rows.weights))
    scale[scale == 0] = 1.0
    Z /= scale
    model = LogisticRegression(max_iter=1000).fit(Z, rows.codes, sample_weight=rows.weights)
    coef = model.coef_ / scale
    return LinearGate(tuple(rows.labels), coef, model.intercept_ - coef @ (first + shift))


@GATES.register("mlp")
def mlp(rows: FitRows, random_state: Any) -> MLPGate:
    """Fit the paper's concept classifier: one hidden layer of 128 ReLU units, scikit-learn's defaults."""
    from sklearn.neural_network import MLPClassifier

    rows = rows.counted()
    model = MLPClassifier(hidden_layer_sizes=(128,), random_state=random_state)
    model.fit(rows.X.astype(np.float64), rows.codes, sample_weight=rows.weights)
    (hidden, readout), (hidden_bias, readout_bias) = model.coefs_, model.intercepts_
    return MLPGate(tuple(rows.labels), hidden, hidden_bias, readout, readout_bias)
