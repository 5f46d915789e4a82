"""The concept-encoding function of a study: trained once, kept as a gate without pickle."""

from typing import Any

import numpy as np

from repsurgery.files import Contents
from repsurgery.gates import Gate, LinearGate, MLPGate
from repsurgery.gates.rules import gate_from_arrays
from repsurgery.studies.common.stages import KIND, Stages
from repsurgery.studies.fairness.classifiers import concept_classifier
from repsurgery.studies.fairness.remarks import remarked
from repsurgery.studies.fairness.rows import Part
from repsurgery.studies.fairness.spec import StudySpec

__all__ = ["concept_gate"]


def concept_gate(spec: StudySpec, train: Part, stages: Stages) -> tuple[Gate, dict[str, float]]:
    """Return the gate that reads the concept from a row, trained on the gold concepts of ``train``, and its epochs."""

    def fitted() -> Contents:
        classifier = concept_classifier(spec.concept_classifier, early_stopping=spec.early_stopping, seed=spec.seed)
        with remarked():  # that it did not settle is in the facts
            gate = _as_gate(classifier.fit(train.X, train.z))
        facts = {"epochs": float(classifier.n_iter_), "settled": float(getattr(classifier, "converged_", True))}
        return Contents(KIND, {"kind": gate.kind, "classes": list(gate.classes), "facts": facts}, gate.arrays())

    held = stages.get("concept", fitted)
    gate = gate_from_arrays(held.header["kind"], tuple(held.header["classes"]), dict(held.arrays))
    return gate, dict(held.header["facts"])


def _as_gate(classifier: Any) -> Gate:
    classes = tuple(np.asarray(classifier.classes_).tolist())
    if hasattr(classifier, "coefs_"):
        (hidden, readout), (hidden_bias, readout_bias) = classifier.coefs_, classifier.intercepts_
        return MLPGate(classes, hidden, hidden_bias, readout, readout_bias)
    return LinearGate(classes, classifier.coef_, classifier.intercept_)
