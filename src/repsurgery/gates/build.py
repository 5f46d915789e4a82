"""`build_gate`: a gate by name, fitted on moments or rows."""

from typing import Any

import numpy as np

from repsurgery.arrays import Label, check_labels, check_rows, check_weights, require_finite
from repsurgery.errors import LabelError, OptionsError, ParameterError, RowsNeededError, ShapeError
from repsurgery.gates.base import GATES, Gate
from repsurgery.gates.rules import ClassifierGate
from repsurgery.moments import ClassMoments
from repsurgery.moments.shrinkage import Alpha, FitRows, check_shrinkage, shrink_classes, shrunk_covariance
from repsurgery.registry import call_reading, reads

__all__ = ["build_gate", "make_gate", "require_no_rows"]

_READ_BY = {"shrinkage": "covariance", "ridge": "covariance", "alpha": "covariance", "random_state": "random_state"}


def build_gate(
    gate: Any,
    data: Any,
    labels: Any = None,
    *,
    sample_weight: Any = None,
    shrinkage: str | None = None,
    ridge: float | None = None,
    alpha: Alpha | None = None,
    random_state: Any = None,
) -> Gate:
    """Return the fitted gate that an estimator with this ``gate`` would use.

    Parameters
    ----------
    gate : str, fitted gate or fitted classifier
        "nearest-mean", "always", "labels", "logistic", "mlp", "lda", "qda", or the name of a plugin.
    data : ClassMoments, or rows (n, d)
    labels : (n,) labels
        The concept of each row; needed for rows and refused for moments.
    sample_weight : (n,) array-like, or None
        A weight of 2 counts a row twice.
    shrinkage, ridge, alpha
        How covariances are regularised; only for gates that read covariances, such as "lda" and "qda". "pooled" draws
        the covariances of all classes together.
    random_state : int or None
        The seed of the training; only for gates that are trained with one, such as "mlp".

    Guarantees
    ----------
    The gate is the one of the estimator (test_build_gate_builds_the_gate_of_the_estimator).
    A parameter that the gate does not read is refused (test_a_parameter_that_a_gate_does_not_read_is_refused).

    Examples
    --------
    >>> import repsurgery as rs
    >>> gate = rs.build_gate("nearest-mean", [[0.0], [1.0], [9.0], [10.0]], ["clean", "clean", "toxic", "toxic"])
    >>> gate.predict([[2.0], [8.0]]).tolist()
    ['clean', 'toxic']
    """
    passed = {"shrinkage": shrinkage, "ridge": ridge, "alpha": alpha, "random_state": random_state}
    read = reads(GATES[gate]) if isinstance(gate, str) else frozenset[str]()
    unread = [name for name, value in passed.items() if value is not None and _READ_BY[name] not in read]
    if unread:
        raise OptionsError(f"The gate {gate!r} does not read {' or '.join(unread)}. Leave it out.")
    shrinkage, ridge = shrinkage or "none", 1e-5 if ridge is None else ridge
    alpha = "auto" if alpha is None else alpha
    check_shrinkage(shrinkage, ridge, alpha)
    moments, rows = _checked(data, labels, sample_weight)
    return make_gate(gate, moments, rows, shrinkage=shrinkage, ridge=ridge, alpha=alpha, random_state=random_state)


def _checked(data: Any, labels: Any, sample_weight: Any) -> tuple[ClassMoments, FitRows | None]:
    if isinstance(data, ClassMoments):
        if labels is not None or sample_weight is not None:
            raise ParameterError("build_gate got moments, which hold labels and weights already. Leave both out.")
        return data, None
    X = check_rows(data, caller="build_gate")
    names, codes = check_labels(labels, len(X), caller="build_gate")
    weights = check_weights(sample_weight, len(X), caller="build_gate")
    require_finite(X, caller="build_gate", rows=None if weights is None else np.flatnonzero(weights))
    return ClassMoments.of_codes(X, names, codes, weights, "float64"), FitRows(X, codes, names, weights)


def make_gate(
    gate: Any,
    moments: ClassMoments,
    rows: FitRows | None,
    *,
    shrinkage: str,
    ridge: float,
    alpha: Alpha,
    random_state: Any,
) -> Gate:
    """Return the fitted gate; values that it does not read are not used. See `build_gate`."""
    if not isinstance(gate, str):
        return _from_classifier(gate, tuple(moments.labels), moments.dim)
    if rows is None:
        require_no_rows(gate)
    regularised = "covariance" in reads(GATES[gate])
    shrinkages = shrink_classes(shrinkage, ridge, moments, rows, alpha=alpha) if regularised else {}
    made = call_reading(
        GATES[gate],
        moments=moments,
        rows=rows,
        covariance=lambda label: shrunk_covariance(moments[label], shrinkages[label]),
        random_state=random_state,
    )
    if not isinstance(made, Gate):
        raise ParameterError(f"The gate {gate!r} returned a {type(made).__name__}; its function must return a Gate.")
    return made


def require_no_rows(gate: Any) -> None:
    """Raise `RowsNeededError` where ``gate`` is the name of one that is trained on rows."""
    if isinstance(gate, str) and "rows" in reads(GATES[gate]):
        others = ", ".join(repr(name) for name in GATES if "rows" not in reads(GATES[name]))
        raise RowsNeededError(
            f"gate={gate!r} is trained on rows, and moments do not hold them. Call fit(X, z), or choose a gate that "
            f"reads moments: {others}, or a fitted gate."
        )


def _from_classifier(classifier: Any, classes: tuple[Label, ...], dim: int) -> Gate:
    """Return a fitted gate of these classes as it is, and any fitted object with ``predict`` as a gate."""
    if not isinstance(classifier, Gate):
        if isinstance(classifier, type) or not callable(getattr(classifier, "predict", None)):
            raise ParameterError(
                f"gate is {classifier!r}; it must be one of {', '.join(map(repr, GATES))}, a fitted gate, or a fitted "
                "classifier with predict."
            )
        return ClassifierGate(classes, classifier)
    if any(label not in classes for label in classifier.classes):
        raise LabelError(
            f"The gate has the classes {list(classifier.classes)}, the data have {list(classes)}. Fit the gate on the "
            "same concept labels."
        )
    if classifier.dim not in (None, dim):
        raise ShapeError(
            f"The gate reads {classifier.dim} features; the data have {dim}. Fit it on vectors of the same site."
        )
    return classifier
