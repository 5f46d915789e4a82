"""The estimators inside scikit-learn: pipelines with routed concepts, searches, clones, frames."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline

import repsurgery as rs
from tests.strategies import make_concept


@pytest.fixture
def task():
    """Rows, a task label, and a concept correlated with it."""
    X, z = make_concept(0, d=6, rows=(200, 200))
    rng = np.random.default_rng(1)
    y = np.where(rng.random(len(z)) < 0.8, z, 1 - z)
    X[:, 0] += 2 * y
    return X, y, np.where(z, "f", "m")


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_fit_transform_by_gate_and_by_concept(task):
    X, y, z = task
    est = rs.MiMiC()
    assert (est.fit_transform(X, z) == est.fit(X, z).transform(X)).all()
    by_labels = est.fit_transform(X, y, concept=z)
    assert est.classes_.tolist() == ["f", "m"]
    assert (by_labels == est.transform(X, concept=z)).all()
    assert (by_labels[z == "m"] == X[z == "m"]).all()
    assert (by_labels != est.transform(X)).any()


def test_with_routing_the_concept_reaches_the_step_and_y_the_classifier(task, routing):
    X, y, z = task
    pipe = make_pipeline(rs.MiMiC(), LogisticRegression())
    pipe.fit(X, y, concept=z)
    step, classifier = pipe[0], pipe[1]
    assert step.classes_.tolist() == ["f", "m"]
    assert classifier.classes_.tolist() == [0, 1]
    # the classifier was trained on rows steered by their labels
    alone = LogisticRegression().fit(rs.MiMiC().fit(X, z).transform(X, concept=z), y)
    assert_allclose(classifier.coef_, alone.coef_)
    # at predict the gate decides
    assert (pipe.predict(X) == classifier.predict(step.transform(X))).all()
    assert (pipe.predict(X, concept=z) == classifier.predict(step.transform(X, concept=z))).all()


def test_without_routing_a_pipeline_fits_on_y(task):
    # not a wish but a warning, as the documentation says: y is then taken for the concept
    X, y, _ = task
    pipe = make_pipeline(rs.MiMiC(), LogisticRegression()).fit(X, y)
    assert pipe[0].classes_.tolist() == [0, 1]


def test_with_routing_a_missing_concept_is_warned_of(task, routing):
    X, y, z = task
    for pipe in (make_pipeline(rs.MiMiC(), LogisticRegression()), make_pipeline(PCA(4), rs.LEACE())):
        with pytest.warns(rs.errors.ConceptWarning, match="concept=z"):
            pipe.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", rs.errors.ConceptWarning)
        make_pipeline(rs.MiMiC(), LogisticRegression()).fit(X, y, concept=z)
        rs.MiMiC().fit(X, z).fit_transform(X, z)  # no pipeline: y is the concept
        with sklearn.config_context(enable_metadata_routing=False):
            make_pipeline(rs.MiMiC(), LogisticRegression()).fit(X, y)  # nothing can be known here


def test_grid_search_and_cross_validation_route_the_concept(task, routing):
    X, y, z = task
    pipe = make_pipeline(rs.MiMiC(shrinkage="ridge"), LogisticRegression())
    search = GridSearchCV(pipe, {"mimic__ridge": [1e-6, 1e-2], "mimic__gate": ["lda", "nearest-mean"]}, cv=3)
    search.fit(X, y, concept=z)
    assert search.best_estimator_[0].classes_.tolist() == ["f", "m"]
    assert len(cross_val_score(pipe, X, y, params={"concept": z}, cv=3)) == 3


def test_groups_reach_both_the_splitter_and_the_estimator(task, routing):
    X, y, z = task
    g = np.arange(len(X)) // 4
    pipe = make_pipeline(rs.MiMiC(), LogisticRegression())
    pipe.fit(X, y, concept=z, groups=g)
    assert pipe[0].moments_["f"].groups == rs.ClassMoments.of(X, z, groups=g)["f"].groups
    split = cross_validate(pipe, X, y, params={"concept": z, "groups": g}, cv=GroupKFold(3), return_estimator=True)
    for fitted in split["estimator"]:
        assert fitted[0].moments_["f"].groups is not None
    pipe.set_params(mimic=rs.MiMiC().set_fit_request(concept=True, groups=False))
    assert pipe.fit(X, y, concept=z)[0].moments_["f"].groups is None


def test_pipelines_after_pca_and_inverse(task, routing):
    X, y, z = task
    pipe = make_pipeline(PCA(4, random_state=0), rs.MeanMatching(gate="always"))
    Y = pipe.fit(X, y, concept=z).transform(X)
    assert_allclose(pipe.inverse_transform(Y), pipe[0].inverse_transform(pipe[0].transform(X)), atol=1e-9)


def test_inverse_transform_needs_to_know_who_was_steered(task):
    X, _, z = task
    est = rs.MiMiC().fit(X, z)
    Y = est.transform(X, concept=z)
    assert_allclose(est.inverse_transform(Y, concept=z), X, atol=1e-9)
    with pytest.raises(rs.errors.SurgeryError, match="concept="):
        est.inverse_transform(Y)
    with pytest.raises(rs.errors.SingularMapError):
        rs.LEACE().fit(X, z).inverse_transform(Y)


@pytest.mark.parametrize("estimator", [rs.MiMiC, rs.LEACE])
def test_frames_in_frames_out(task, estimator):
    X, _, z = task
    frame = pd.DataFrame(X, columns=list("abcdef"), index=np.arange(len(X)) * 3)
    est = estimator().set_output(transform="pandas").fit(frame, pd.Series(z))
    out = est.transform(frame)
    assert isinstance(out, pd.DataFrame)
    assert list(out.columns) == list("abcdef")
    assert (out.index == frame.index).all()
    with pytest.raises(rs.errors.ShapeError, match="feature names"):
        est.transform(frame[list("fedcba")])


def test_clones_are_unfitted_copies(task):
    X, _, z = task
    est = rs.MiMiC(source="f", target="m", shrinkage="oas").fit(X, z)
    fresh = clone(est)
    assert fresh.get_params() == est.get_params()
    assert not hasattr(fresh, "steering_")
    with pytest.raises(sklearn.exceptions.NotFittedError):
        fresh.transform(X)


@pytest.mark.parametrize("estimator", [rs.MiMiC, rs.LEACE, rs.BarycenterErasure])
def test_fit_partial_fit_and_moments_end_in_one_place(task, estimator):
    X, _, z = task
    whole = estimator().fit(X, z)
    parts = estimator()
    for start in range(0, len(X), 37):
        parts.partial_fit(X[start : start + 37], z[start : start + 37])
    merged = estimator.from_moments(rs.ClassMoments.of(X[:99], z[:99]) + rs.ClassMoments.of(X[99:], z[99:]))
    for other in (parts, merged):
        for label, m in whole.maps_.items():
            assert_allclose(other.maps_[label].weight, m.weight, rtol=1e-9, atol=1e-9)
            assert_allclose(other.maps_[label].bias, m.bias, rtol=1e-9, atol=1e-9)
        assert_allclose(other.transform(X), whole.transform(X), atol=1e-8)
        assert other.n_features_in_ == 6


def test_partial_fit_may_start_with_one_class(task):
    X, _, z = task
    est = rs.MeanMatching().partial_fit(X[z == "f"], z[z == "f"])
    with pytest.raises(rs.errors.LabelError, match="at least two"):
        est.transform(X)
    est.partial_fit(X[z == "m"], z[z == "m"])
    assert_allclose(est.map_.shift, rs.MeanMatching().fit(X, z).map_.shift, atol=1e-12)


def test_the_order_of_rows_does_not_matter(task):
    X, _, z = task
    order = np.random.default_rng(0).permutation(len(X))
    assert_allclose(rs.MiMiC().fit(X[order], z[order]).map_.weight, rs.MiMiC().fit(X, z).map_.weight, atol=1e-10)


@pytest.mark.parametrize("estimator", [rs.MeanMatching, rs.MiMiC, rs.TraceMatching, rs.LEACE, rs.MidSteer])
def test_rotating_the_space_rotates_the_map(task, estimator):
    X, _, z = task
    Q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))
    plain, rotated = estimator().fit(X, z).map_, estimator().fit(X @ Q.T, z).map_
    assert_allclose(rotated.weight, Q @ plain.weight @ Q.T, atol=1e-9)
    assert_allclose(rotated.bias, Q @ plain.bias, atol=1e-9)
    if estimator is rs.MiMiC:  # the diagonal map makes no such claim
        diagonal = rs.DiagonalTransport().fit(X @ Q.T, z).map_.weight
        assert np.abs(diagonal - Q @ rs.DiagonalTransport().fit(X, z).map_.weight @ Q.T).max() > 1e-3
