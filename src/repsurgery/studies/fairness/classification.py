"""The two classifiers of a study: the concept classifier, which is the gate of every method, and the task's."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.files import Contents
from repsurgery.gates import Gate, LinearGate, MLPGate
from repsurgery.gates.rules import gate_from_arrays
from repsurgery.studies.common.stages import KIND, Stages
from repsurgery.studies.fairness.classifiers import (
    SoftmaxRegression,
    concept_classifier,
    released_logistic_regression,
)
from repsurgery.studies.fairness.methods import Steered
from repsurgery.studies.fairness.notes import collected_warnings
from repsurgery.studies.fairness.rows import Part, StudyRows
from repsurgery.studies.fairness.spec import StudySpec

__all__ = ["concept_gate", "predict_task", "task_classifier"]


def concept_gate(spec: StudySpec, train: Part, stages: Stages) -> tuple[Gate, dict[str, float]]:
    """Return the gate that predicts the concept of a row, trained on the gold concepts of ``train``, and its epochs."""

    def fit() -> Contents:
        classifier = concept_classifier(spec.concept_classifier, early_stopping=spec.early_stopping, seed=spec.seed)
        with collected_warnings():  # the facts say whether it converged
            gate = _as_gate(classifier.fit(train.X, train.z))
        facts = {"epochs": float(classifier.n_iter_), "settled": float(getattr(classifier, "converged_", True))}
        return Contents(KIND, {"kind": gate.kind, "classes": list(gate.classes), "facts": facts}, gate.arrays())

    stage = stages.get("concept", fit)
    gate = gate_from_arrays(stage.header["kind"], tuple(stage.header["classes"]), dict(stage.arrays))
    return gate, dict(stage.header["facts"])


def _as_gate(classifier: Any) -> Gate:
    classes = tuple(np.asarray(classifier.classes_).tolist())
    if hasattr(classifier, "coefs_"):
        (hidden, readout), (hidden_bias, readout_bias) = classifier.coefs_, classifier.intercepts_
        return MLPGate(classes, hidden, hidden_bias, readout, readout_bias)
    return LinearGate(classes, classifier.coef_, classifier.intercept_)


def task_classifier(spec: StudySpec) -> Any:
    """Return the unfitted logistic regression of the task."""
    return SoftmaxRegression() if spec.head == "converged" else released_logistic_regression(max_iter=spec.head_epochs)


def predict_task(spec: StudySpec, rows: StudyRows, steered: Steered) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Train the task's logistic regression on the steered training rows and apply it to dev and test.

    Returns
    -------
    probabilities : mapping of split to (n, K) array
        Empty for a study without task.
    header : mapping
        ``classes``, the K sorted labels, and ``facts``: iterations, and whether the regression converged.
    """
    if not rows.has_task:
        return {}, {"classes": [], "facts": {}}
    model = task_classifier(spec)
    model.fit(steered.X["train"], rows.train.y)
    probabilities = {name: model.predict_proba(steered.X[name]).astype(np.float32) for name in ("dev", "test")}
    facts = {"iterations": int(np.max(model.n_iter_)), "converged": bool(model.converged_)}
    return probabilities, {"classes": np.asarray(model.classes_).tolist(), "facts": facts}
