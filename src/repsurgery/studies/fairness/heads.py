"""The task's classifier: what is predicted from the rows, before and after steering."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.studies.fairness.classifiers import SoftmaxRegression, released_logistic_regression
from repsurgery.studies.fairness.methods import Steered
from repsurgery.studies.fairness.rows import StudyRows
from repsurgery.studies.fairness.spec import StudySpec

__all__ = ["Head", "fit_head"]


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """Predictions of a classifier trained on the steered training rows.

    Attributes
    ----------
    classes : (K,) labels, sorted
    scores : mapping of split to (n, K) probabilities
    facts : mapping
        Iterations, loss, and whether it converged.
    """

    classes: NDArray[np.str_]
    scores: dict[str, NDArray[np.float32]]
    facts: dict[str, Any]


def fit_head(spec: StudySpec, rows: StudyRows, steered: Steered) -> Head:
    """Train the task's logistic regression on the steered training rows and apply it to dev and test."""
    model: Any = (
        SoftmaxRegression() if spec.head == "converged" else released_logistic_regression(max_iter=spec.head_epochs)
    )
    model.fit(steered.X["train"], rows.train.y)
    scores = {name: model.predict_proba(steered.X[name]).astype(np.float32) for name in ("dev", "test")}
    facts = {"iterations": int(np.max(model.n_iter_)), "converged": bool(model.converged_)}
    return Head(np.asarray(model.classes_), scores, facts)
