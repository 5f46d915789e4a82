"""Agreement with other packages where they are right, and with the exact solution where they are not."""

import warnings

import numpy as np
import ot
import pytest
import torch
from concept_erasure import LeaceEraser, QuadraticEditor, QuadraticFitter
from numpy.testing import assert_allclose
from sklearn.covariance import ledoit_wolf
from sklearn.covariance import oas as sklearn_oas
from sklearn.linear_model import LogisticRegression

import repsurgery as rs
from tests.strategies import Concept, cov, covariance_root, make_concept, relative


def pot(X, z, reg):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ot.da.LinearTransport(reg=reg).fit(Xs=X[z == 0], Xt=X[z == 1])


def tensor(A):
    return torch.tensor(np.asarray(A), dtype=torch.float64)


@pytest.mark.parametrize("reg", [1e-8, 1e-5, 1e-2])
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_a_ridge_on_both_diagonals_is_pot_s(reg, offset):
    X, z = make_concept(0, d=12, rows=(400, 300), offset=offset)
    peer = pot(X, z, reg)
    ours = rs.MiMiC(shrinkage="ridge", ridge=reg).fit(X, z).map_
    assert relative(ours.weight, peer.A_) < 1e-9
    assert relative(ours.bias, peer.B_.ravel()) < 1e-9
    assert relative(ours(X[z == 0]), peer.transform(X[z == 0])) < 1e-9
    if reg > 1e-3:
        assert relative(rs.MiMiC().fit(X, z).map_.weight, peer.A_) > 1e-6


def test_leace_is_concept_erasure_s_without_shrinkage():
    X, z = make_concept(1, d=12, rows=(400, 300))
    peer = LeaceEraser.fit(tensor(X), torch.tensor(z), shrinkage=False)
    ours = rs.LEACE().fit(X, z)
    assert_allclose(ours.map_(X), peer(tensor(X)).numpy(), atol=1e-9)
    assert_allclose(ours.map_.weight, peer.P.numpy(), atol=1e-9)


def test_one_hot_leace_agrees_for_many_classes():
    X, z = make_concept(2, d=9, rows=(100, 150, 120, 90))
    peer = LeaceEraser.fit(tensor(X), torch.nn.functional.one_hot(torch.tensor(z)).double(), shrinkage=False)
    assert_allclose(rs.LEACE().fit(X, z).map_(X), peer(tensor(X)).numpy(), atol=1e-9)


def quadratic_fitter(X, z):
    fitter = QuadraticFitter(X.shape[1], int(z.max()) + 1, shrinkage=False, dtype=torch.float64)
    fitter.update(tensor(X), torch.tensor(z))
    return fitter


def test_mimic_is_the_quadratic_editor():
    X, z = make_concept(3, d=8, rows=(200, 200))  # equal counts: 1/n and 1/(n − 1) then give one map
    editor: QuadraticEditor = quadratic_fitter(X, z).editor("cpu")
    moved = editor.transport(tensor(X[z == 0]), 0, 1).numpy()
    assert_allclose(rs.MiMiC().fit(X, z).map_(X[z == 0]), moved, atol=1e-8)


def test_barycenter_erasure_is_the_quadratic_eraser():
    X, z = make_concept(3, d=6, rows=(200, 200))  # balanced: their mean is not weighted by frequency
    eraser = quadratic_fitter(X, z).eraser
    ours = rs.BarycenterErasure().fit(X, z).transform(X, concept=z)
    assert_allclose(ours, eraser(tensor(X), torch.tensor(z)).numpy(), atol=1e-8)


@pytest.mark.parametrize("rows", [(15, 20), (90, 80)])
def test_shrinkage_is_scikit_learn_s(rows):
    X, z = make_concept(4, d=25, rows=rows)
    for name, reference in (("oas", sklearn_oas), ("ledoit-wolf", ledoit_wolf)):
        W = rs.MiMiC(shrinkage=name).fit(X, z).map_.weight
        S0, S1 = (reference(X[z == c])[0] for c in (0, 1))
        assert relative(W @ S0 @ W.T, S1) < 1e-9
        assert relative(W @ cov(X[z == 0]) @ W.T, cov(X[z == 1])) > 1e-3


# -- where they are wrong --------------------------------------------------------------------------------------------


def test_integer_labels_of_four_classes_are_erased():
    rng = np.random.default_rng(0)
    z = rng.integers(0, 4, 2000)
    X = rng.normal(size=(2000, 16)) + 6 * rng.normal(size=(4, 16))[z]

    def probe(Y):
        return LogisticRegression(C=1e3, max_iter=5000).fit(Y, z).score(Y, z)

    assert probe(rs.LEACE().fit(X, z).transform(X)) < 0.3
    peer = LeaceEraser.fit(tensor(X), torch.tensor(z), shrinkage=False)
    assert probe(peer(tensor(X)).numpy()) > 0.9


def test_fifteen_rows_in_two_hundred_thousand_are_erased():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200_000, 8))
    z = np.zeros(len(X), dtype=int)
    z[rng.choice(len(X), 15, replace=False)] = 1
    X[z == 1] += 20 / np.sqrt(8)

    def gap(Y):
        return np.linalg.norm(Y[z == 1].mean(0) - Y[z == 0].mean(0))

    est = rs.LEACE().fit(X, z)
    assert gap(X) > 19
    assert gap(est.transform(X)) < 1e-10
    assert est.map_.rank == 1
    peer = LeaceEraser.fit(tensor(X), torch.tensor(z), shrinkage=False)
    assert gap(peer(tensor(X)).numpy()) > 19


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_tensors_are_served(dtype):
    X, z = make_concept(0, d=6, rows=(300, 200))
    T = torch.tensor(X).to(dtype)
    est = rs.LEACE().fit(T, torch.tensor(z))
    assert est.certificate_.mean_gap < 1e-12
    assert est.transform(T).dtype == np.float32
    if dtype == torch.float16:
        with pytest.raises(RuntimeError):
            _ = LeaceEraser.fit(T, torch.tensor(z)).P


def test_fewer_rows_than_dimensions_do_not_crash():
    rng = np.random.default_rng(0)
    X, z = 30 * rng.normal(size=(120, 128)), np.repeat([0, 1], 60)
    assert rs.MiMiC().fit(X, z).certificate_.covariance_gap < 1e-9
    with pytest.raises(ValueError, match="infs or NaNs"):
        pot(X, z, 1e-8)


def ill_conditioned(seed, d, n, condition):
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(n, d)) @ covariance_root(rng, d, condition) for _ in range(2)]
    return Concept(np.vstack(parts).astype(np.float32), np.repeat([0, 1], n))


def test_float32_data_of_condition_1e8_are_steered_to_five_digits():
    concept = ill_conditioned(0, 64, 4000, 1e8)
    S0, S1 = (cov(concept.of(c).astype(np.float64)) for c in (0, 1))

    def error(W):
        return relative(W @ S0 @ W.T, S1)

    est = rs.MiMiC().fit(*concept)
    assert est.certificate_.dtype == "float32"
    assert error(est.map_.weight) <= 1e-5
    assert relative(cov(est.map_(concept.of(0).astype(np.float64))), S1) <= 1e-5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        A, _ = ot.gaussian.empirical_bures_wasserstein_mapping(concept.of(0), concept.of(1), reg=1e-8)
    assert not np.isfinite(A).all() or error(A.astype(np.float64)) > 0.1


def test_default_shrinkage_never_trades_the_guarantee_away_silently():
    X, z = make_concept(5, d=24, rows=(2000, 2000))
    fitter = QuadraticFitter(24, 2, dtype=torch.float64)
    fitter.update(tensor(X), torch.tensor(z))
    moved = fitter.editor("cpu").transport(tensor(X[z == 0]), 0, 1).numpy()
    assert relative(cov(moved), cov(X[z == 1])) > 1e-3
    assert relative(cov(rs.MiMiC().fit(X, z).map_(X[z == 0])), cov(X[z == 1])) < 1e-9
    shrunk = rs.MiMiC(shrinkage="oas").fit(X, z)
    assert shrunk.certificate_.shrinkage_moved > 1e-4
