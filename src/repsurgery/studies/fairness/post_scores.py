"""The probabilities that post-processing starts from: those of the base's classifier, and of groups given classes."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.files import Contents
from repsurgery.studies.common.stages import KIND
from repsurgery.studies.fairness.classification import task_classifier
from repsurgery.studies.fairness.classifiers import SoftmaxRegression
from repsurgery.studies.fairness.rows import Part, StudyRows
from repsurgery.studies.fairness.spec import StudySpec

__all__ = ["class_scores", "fitted_part", "group_shares", "with_groups"]

FOLDS = 5
Probabilities = dict[str, NDArray[Any]]


def fitted_part(spec: StudySpec, values: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return ``values`` of the rows that post-processing is fitted on: those of dev, or of train and dev."""
    return values["dev"] if spec.post_rows == "dev" else np.concatenate([values["train"], values["dev"]])


def class_scores(spec: StudySpec, rows: StudyRows, base: Contents) -> Contents:
    """Return P(y | x) as "dev", "test" and, if post-processing is fitted on them, "train", each (n, K).

    Dev and test have the scores of the base's classifier. A training row has the score of a classifier that was
    trained on four fifths of the training rows without it, because the base is overconfident on its own rows.
    """
    classes = np.array(base.header["classes"])
    scores: Probabilities = {name: base.arrays[f"{name}.scores"] for name in ("dev", "test")}
    if spec.post_rows == "all":
        scores["train"] = np.zeros((len(rows.train), len(classes)), dtype=np.float32)
        for rest, fold in _folds(spec, rows.train):
            model = task_classifier(spec).fit(rest.X, rest.y)
            columns = np.searchsorted(classes, model.classes_)
            scores["train"][np.ix_(fold, columns)] = model.predict_proba(rows.train.X[fold])
    return Contents(KIND, {}, scores)


def group_shares(spec: StudySpec, rows: StudyRows, classes: NDArray[Any]) -> Contents:
    """Return P(a = second group | x, y) for every class y, under the names and in the shapes of `class_scores`.

    A logistic regression of the group on the representation and the class, fitted on the training rows: the same five
    folds score the training rows.
    """
    model = _group_model(rows.train, classes)
    shares: Probabilities = {name: _share(model, rows.parts[name].X) for name in ("dev", "test")}
    if spec.post_rows == "all":
        shares["train"] = np.zeros((len(rows.train), len(classes)), dtype=np.float32)
        for rest, fold in _folds(spec, rows.train):
            shares["train"][fold] = _share(_group_model(rest, classes), rows.train.X[fold])
    return Contents(KIND, {}, shares)


def with_groups(scores: NDArray[Any], shares: NDArray[Any]) -> NDArray[np.float64]:
    """Return P(a, y | x) = P(y | x) P(a | x, y) as (n, 2, K); summed over groups it gives the scores again."""
    second = scores.astype(np.float64) * shares
    return np.stack([scores - second, second], axis=1)


def _folds(spec: StudySpec, train: Part) -> Iterator[tuple[Part, NDArray[np.intp]]]:
    order = np.random.default_rng(spec.seed).permutation(len(train))
    for k in range(FOLDS):
        rest = np.sort(np.concatenate([order[j::FOLDS] for j in range(FOLDS) if j != k]))
        yield Part(train.X[rest], train.y[rest], train.z[rest]), np.sort(order[k::FOLDS])


def _group_model(train: Part, classes: NDArray[Any]) -> SoftmaxRegression:
    X = np.asarray(train.X, dtype=np.float32)
    return SoftmaxRegression().fit(np.hstack([X, train.y[:, np.newaxis] == classes]), train.z)


def _share(model: SoftmaxRegression, X: NDArray[Any]) -> NDArray[np.float32]:
    d = X.shape[1]
    logits = X @ model.coef_[0, :d] + model.intercept_[0]
    shares: NDArray[np.float32] = (0.5 + 0.5 * np.tanh((logits[:, np.newaxis] + model.coef_[0, d:]) / 2)).astype("f4")
    return shares
