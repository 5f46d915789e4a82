"""The classifiers of the released code, and their warnings."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.neural_network import MLPClassifier

from repsurgery.errors import NotConvergedWarning, ParameterError
from repsurgery.studies.fairness.classifiers import concept_classifier, released_logistic_regression


def rows(n=300, d=6, K=4):
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, n)
    return rng.standard_normal((K, d))[y] * 2 + rng.standard_normal((n, d)) + 3, y


def test_the_released_classifier_is_saga_cut_off():
    X, y = rows()
    ours = released_logistic_regression().fit(X, y)
    with pytest.warns(ConvergenceWarning):
        theirs = LogisticRegression(solver="saga", max_iter=30, tol=1e-4, random_state=1).fit(X, y)
    assert np.array_equal(ours.coef_, theirs.coef_)
    assert not ours.converged_
    assert not np.array_equal(ours.coef_, released_logistic_regression(seed=2).fit(X, y).coef_)


def test_saga_that_has_time_converges():
    X, y = rows()
    assert released_logistic_regression(max_iter=20_000).fit(X, y).converged_


def test_other_warnings_of_the_released_classifier_pass():
    X, y = rows()
    with pytest.warns(Warning, match="column-vector"):
        released_logistic_regression().fit(X, y[:, None])


@pytest.mark.parametrize("early_stopping", [False, True])
def test_the_concept_mlp_is_scikit_learns(early_stopping):
    X, z = rows(K=2)
    ours = concept_classifier("mlp", early_stopping=early_stopping, seed=3).set_params(max_iter=5)
    with pytest.warns(NotConvergedWarning, match="Raise max_iter"):
        ours.fit(X, z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = MLPClassifier((128,), early_stopping=early_stopping, random_state=3, max_iter=5).fit(X, z)
    assert not ours.converged_
    assert all(np.array_equal(a, b) for a, b in zip(ours.coefs_, theirs.coefs_, strict=True))


def test_an_mlp_that_has_time_converges():
    X, z = rows(K=2)
    assert concept_classifier("mlp", early_stopping=True).fit(X, z).converged_


def test_the_linear_concept_classifier():
    X, z = rows(K=2)
    theirs = SGDClassifier(loss="log_loss", random_state=0, max_iter=500_000, tol=1e-4).fit(X, z)
    assert np.array_equal(concept_classifier("linear").fit(X, z).coef_, theirs.coef_)


def test_other_kinds_are_refused():
    with pytest.raises(ParameterError, match="'mlp', 'linear'"):
        concept_classifier("tree")
    with pytest.raises(ParameterError, match="leave it out"):
        concept_classifier("linear", early_stopping=True)
