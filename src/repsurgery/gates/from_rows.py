"""Gates that are trained on rows: logistic regression and the paper's one-hidden-layer network."""

from typing import Any

import numpy as np

from repsurgery.gates.base import GATES
from repsurgery.gates.rules import LinearGate, MLPGate
from repsurgery.moments.shrinkage import FitRows

__all__ = ["logistic", "mlp"]


@GATES.register("logistic")
def logistic(rows: FitRows) -> LinearGate:
    """Fit logistic regression (C = 1) on standardised columns and return it as a rule on the raw ones."""
    from sklearn.linear_model import LogisticRegression  # a quarter of a second of imports, only where it is chosen

    X = rows.X
    centre, scale = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    scale[scale == 0] = 1.0
    model = LogisticRegression(max_iter=1000).fit((X - centre) / scale, rows.codes, sample_weight=rows.weights)
    coef = model.coef_ / scale
    return LinearGate(tuple(rows.labels), coef, model.intercept_ - coef @ centre)


@GATES.register("mlp")
def mlp(rows: FitRows, random_state: Any) -> MLPGate:
    """Fit the paper's concept classifier: one hidden layer of 128 ReLU units, scikit-learn's defaults."""
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier(hidden_layer_sizes=(128,), random_state=random_state)
    model.fit(rows.X.astype(np.float64), rows.codes, sample_weight=rows.weights)
    (hidden, readout), (hidden_bias, readout_bias) = model.coefs_, model.intercepts_
    return MLPGate(tuple(rows.labels), hidden, hidden_bias, readout, readout_bias)
