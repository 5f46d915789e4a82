"""`SoftmaxRegression` finds scikit-learn's optimum, whatever the layout of the rows."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from repsurgery.errors import DataError, LabelError, NotConvergedWarning, NotNumericError, ParameterError, ShapeError
from repsurgery.studies.fairness.classifiers import SoftmaxRegression

TIGHT = 1e-20
"""Decrement below this share of the loss: coefficients within about its root, 1e-10, of the optimum."""


def rows(n=600, d=7, K=5, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(K, n, p=np.arange(1, K + 1) / (K * (K + 1) / 2))
    mix = rng.standard_normal((d, d)) * np.geomspace(1, 0.05, d)
    return (rng.standard_normal((K, d))[y] + rng.standard_normal((n, d))) @ mix, y


def objective(X, y, W, b, C, w=1.0):
    F = X @ W.T + b
    if F.shape[1] == 1:
        F = np.column_stack([np.zeros(len(F)), F[:, 0]])
    losses = np.log(np.exp(F - F.max(1, keepdims=True)).sum(1)) + F.max(1) - F[np.arange(len(y)), y]
    return float(np.sum(w * losses) + np.square(W).sum() / (2 * C))


def peer(X, y, C, w=None):
    return LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12, max_iter=200).fit(X, y, sample_weight=w)


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("C", [0.01, 1.0, 30.0])
def test_the_optimum_is_that_of_scikit_learn(K, C):
    X, y = rows(K=K)
    ours, theirs = SoftmaxRegression(C=C, tol=TIGHT).fit(X, y), peer(X, y, C)
    assert ours.coef_.shape == theirs.coef_.shape
    scale = np.abs(theirs.coef_).max()
    assert np.abs(ours.coef_ - theirs.coef_).max() < 1e-7 * scale
    centred = ours.intercept_ - theirs.intercept_
    # several classes: intercepts are defined up to a constant common to all
    assert np.ptp(np.append(centred, 0) if K == 2 else centred) < 1e-7 * (1 + np.abs(theirs.intercept_).max())
    assert ours.loss_ == pytest.approx(objective(X, y, theirs.coef_, theirs.intercept_, C), rel=1e-12)
    assert np.abs(ours.predict_proba(X) - theirs.predict_proba(X)).max() < 1e-7
    # another penalty has another optimum
    assert np.abs(SoftmaxRegression(C=2 * C, tol=TIGHT).fit(X, y).coef_ - theirs.coef_).max() > 1e-3 * scale


@pytest.mark.parametrize("K", [2, 5])
def test_the_default_tolerance_is_within_a_hundred_thousandth_of_the_least_loss(K):
    X, y = rows(n=3000, d=20, K=K)
    best = SoftmaxRegression(tol=TIGHT).fit(X, y).loss_
    ours = SoftmaxRegression().fit(X.astype(np.float32), y)
    assert ours.converged_
    reached = objective(X.astype(np.float32), y, ours.coef_, ours.intercept_, 1.0)
    assert ours.loss_ == pytest.approx(reached, rel=1e-6)
    assert best * (1 - 1e-6) <= reached <= best * (1 + 1e-5)
    loose = SoftmaxRegression(tol=1e-2).fit(X, y)
    assert loose.loss_ > best * (1 + 1e-5)


def test_weights_count_rows():
    X, y = rows()
    w = np.random.default_rng(1).integers(0, 4, len(X))
    weighted = SoftmaxRegression(tol=TIGHT).fit(X, y, sample_weight=w)
    repeated = SoftmaxRegression(tol=TIGHT).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    assert np.allclose(weighted.coef_, repeated.coef_, rtol=0, atol=1e-7)
    assert np.abs(weighted.coef_ - SoftmaxRegression().fit(X, y).coef_).max() > 1e-2
    assert np.allclose(weighted.coef_, peer(X, y, 1.0, w).coef_, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("dtype", "offset"), [(np.float64, 1e6), (np.float32, 2.0**10)])
def test_an_offset_of_the_data_changes_the_intercepts_only(dtype, offset):
    X, y = rows()
    # a grid of 1/256 survives the offset in float32, so both problems hold the same numbers
    X = np.round(X * 256) / 256
    plain = SoftmaxRegression(tol=1e-8).fit(X, y)
    moved = SoftmaxRegression(tol=1e-8).fit((X + offset).astype(dtype), y)
    assert np.abs(moved.coef_ - plain.coef_).max() < 1e-3 * np.abs(plain.coef_).max()
    assert moved.loss_ == pytest.approx(plain.loss_, rel=1e-7)
    gap = moved.intercept_ + moved.coef_.sum(axis=1) * offset - plain.intercept_
    assert np.ptp(gap) < 1e-2


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("tol", [1e-6, TIGHT])
def test_memory_maps_are_read_as_they_are(tmp_path, dtype, tol):
    X, y = rows(n=2500)
    np.save(tmp_path / "X.npy", X.astype(dtype))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    ours = SoftmaxRegression(tol=tol).fit(mapped, y)
    inside = SoftmaxRegression(tol=tol).fit(np.array(mapped), y)
    assert np.array_equal(ours.coef_, inside.coef_)
    best = peer(np.array(mapped, dtype=np.float64), y, 1.0)
    least = objective(np.array(mapped, dtype=np.float64), y, best.coef_, best.intercept_, 1.0)
    assert ours.loss_ == pytest.approx(least, rel=1e-5 if tol == 1e-6 else 1e-12)


def test_fitting_twice_gives_the_same_bits():
    X, y = rows(n=2500)
    first, second = SoftmaxRegression().fit(X, y), SoftmaxRegression().fit(X, y)
    assert np.array_equal(first.coef_, second.coef_)
    assert first.loss_ == second.loss_


def test_fewer_rows_than_features():
    X, y = rows(n=30, d=90, K=3)
    ours = SoftmaxRegression(tol=TIGHT).fit(X, y)
    theirs = LogisticRegression(tol=1e-10, max_iter=10_000).fit(X, y)
    assert ours.loss_ <= objective(X, y, theirs.coef_, theirs.intercept_, 1.0) * (1 + 1e-9)


def test_constant_and_duplicated_columns():
    X, y = rows(K=3)
    X = np.column_stack([X, X[:, :2], np.full(len(X), 7.0)])
    ours, theirs = SoftmaxRegression(tol=TIGHT).fit(X, y), peer(X, y, 1.0)
    assert np.abs(ours.coef_ - theirs.coef_).max() < 1e-6
    assert np.abs(ours.coef_[:, -1]).max() < 1e-12


@pytest.mark.parametrize("C", [1e-6, 1.0, 1e6])
def test_columns_of_very_different_scales(C):
    X, y = rows(K=3)
    X *= np.geomspace(1e-3, 1e3, X.shape[1])
    theirs = peer(X, y, C)
    least = objective(X, y, theirs.coef_, theirs.intercept_, C)
    assert SoftmaxRegression(C=C, tol=TIGHT).fit(X, y).loss_ <= least * (1 + 1e-10)
    assert SoftmaxRegression(C=C).fit(X, y).loss_ <= least * (1 + 1e-5)


def test_stopping_early_is_said():
    X, y = rows()
    with pytest.warns(NotConvergedWarning, match="Raise max_iter"):
        early = SoftmaxRegression(max_iter=1).fit(X, y)
    assert not early.converged_
    assert early.n_iter_ == 1


def test_what_cannot_be_fitted_is_refused():
    X, y = rows()
    with pytest.raises(LabelError, match="at least two"):
        SoftmaxRegression().fit(X, np.zeros(len(X)))
    with pytest.raises(LabelError, match="at least two"):
        SoftmaxRegression().fit(X, y, sample_weight=(y == 1).astype(float))
    for bad in (np.nan, np.inf):
        broken = X.copy()
        broken[17, 3] = bad
        with pytest.raises(DataError, match="row 17, column 3"):
            SoftmaxRegression().fit(broken, y)
    with pytest.raises(NotNumericError):
        SoftmaxRegression().fit(X.astype(complex), y)
    with pytest.raises(ShapeError, match="fit again"):
        SoftmaxRegression().fit(X, y).predict(X[:, :-1])


@pytest.mark.parametrize(
    "parameters", [{"C": 0.0}, {"C": -1.0}, {"C": np.inf}, {"C": "1"}, {"tol": 0}, {"max_iter": 0}, {"max_iter": 2.5}]
)
def test_parameters_outside_their_range_are_refused(parameters):
    X, y = rows()
    with pytest.raises(ParameterError, match=next(iter(parameters))):
        SoftmaxRegression(**parameters).fit(X, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([SoftmaxRegression(tol=TIGHT)])  # one of them compares fits to 1e-7
def test_scikit_learn_checks(estimator, check):
    check(estimator)
