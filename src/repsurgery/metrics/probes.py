"""Held-out accuracy of probes that predict the concept from rows."""

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from repsurgery.arrays import check_integer, check_labels, check_rows, require_finite
from repsurgery.errors import LabelError, NotConvergedWarning
from repsurgery.metrics.cells import encode_labels, predicted_codes

__all__ = ["linear_probe_accuracy", "majority_share", "mlp_probe_accuracy"]

HELD_BACK = 0.1
"""The share of training rows on which early stopping is decided."""


def majority_share(z: Any) -> float:
    """Return the share of the largest class, which is the accuracy of the best constant prediction.

    Examples
    --------
    >>> from repsurgery.metrics import majority_share
    >>> majority_share(["f", "m", "m", "m"])
    0.75
    """
    _, codes = encode_labels(z, caller="majority_share")
    return float(np.bincount(codes).max() / len(codes))


def linear_probe_accuracy(X_train: Any, z_train: Any, X_test: Any, z_test: Any) -> float:
    """Return the held-out accuracy of a logistic regression trained on standardised rows.

    Compare with `majority_share` of ``z_test``. If class means coincide, no logistic regression has a lower expected
    loss than a constant prediction; its accuracy may still differ, because accuracy is not a convex loss.

    Parameters
    ----------
    X_train, X_test : (n, d) and (m, d) arrays
    z_train, z_test : (n,) and (m,) labels

    Warns
    -----
    NotConvergedWarning
        If 1,000 iterations do not suffice.
    """
    probe = LogisticRegression(max_iter=1000)
    return _held_out(probe, X_train, z_train, X_test, z_test, "linear_probe_accuracy")


def mlp_probe_accuracy(
    X_train: Any, z_train: Any, X_test: Any, z_test: Any, *, hidden: int = 128, seed: int = 0
) -> float:
    """Return the held-out accuracy of a network with one hidden layer of ReLUs, trained on standardised rows.

    Training stops when the accuracy on a validation tenth of the training rows no longer rises.

    Parameters
    ----------
    X_train, z_train, X_test, z_test
        As in `linear_probe_accuracy`; at least ten training rows per class.
    hidden : int
        Hidden units.
    seed : int
        Seeds the initial weights, the validation rows and the order of the batches.

    Warns
    -----
    NotConvergedWarning
        If 200 epochs do not suffice.
    """
    caller = "mlp_probe_accuracy"
    check_integer("hidden", hidden)
    labels, codes = encode_labels(z_train, caller=caller)
    fewest = int(np.bincount(codes).min())
    if fewest < 1 / HELD_BACK:
        rare = labels[int(np.bincount(codes).argmin())]
        raise LabelError(
            f"{caller} holds back a tenth of each class and got {fewest} rows of {rare!r}; give ten or more of each."
        )
    probe = MLPClassifier(
        hidden_layer_sizes=(hidden,), early_stopping=True, validation_fraction=HELD_BACK, random_state=seed
    )
    return _held_out(probe, X_train, z_train, X_test, z_test, caller)


def _held_out(probe: Any, X_train: Any, z_train: Any, X_test: Any, z_test: Any, caller: str) -> float:
    X = check_rows(X_train, caller=caller)
    X_test = check_rows(X_test, dim=X.shape[1], caller=caller)
    for rows in (X, X_test):
        require_finite(rows, caller=caller)
    labels, codes = check_labels(z_train, len(X), caller=caller)
    if len(labels) < 2:
        raise LabelError(f"{caller} got training rows of {labels[0]!r} alone; give rows of two classes or more.")
    truth = predicted_codes(labels, z_test, len(X_test), caller=caller)
    # standardised rows do not depend on units, but the squares of very large or very small ones leave float64
    widest = np.maximum(np.abs(X.max(axis=0).astype(np.float64)), np.abs(X.min(axis=0).astype(np.float64)))
    power = np.frexp(widest)[1]
    X, X_test = (np.ldexp(rows, -power) for rows in (X, X_test))
    model = make_pipeline(StandardScaler(), probe)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(X, codes)
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            steps = np.max(probe.n_iter_)
            message = f"{caller} stopped after {steps} iterations without converging: the accuracy is a lower bound."
            warnings.warn(message, NotConvergedWarning, stacklevel=3)
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return float((model.predict(X_test) == truth).mean())
