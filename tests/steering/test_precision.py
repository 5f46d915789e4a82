"""Features that vary by no more than the rounding of their rows count as constant, in every method that whitens."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import repsurgery as rs
from repsurgery.errors import ConstantFeatureWarning, GainWarning, SingularCovarianceError
from repsurgery.moments.pooled import supported_alpha
from tests.strategies import structured

EPS32 = float(np.finfo(np.float32).eps)
LIVE = ("normal", "normal", "sparse", "counts", "tied", "normal")
NOISE = {
    "beside": lambda rng, n: EPS32 * 0.01 * rng.normal(size=n),
    "offset": lambda rng, n: EPS32 * (-1.0 + 0.01 * rng.normal(size=n)),
    "dead": lambda rng, n: 1e-32 * rng.normal(size=n),
    "last place": lambda rng, n: np.where(rng.random(n) < 0.5, 7.0, np.nextafter(np.float32(7.0), np.float32(8.0))),
    "constant": lambda rng, n: np.full(n, 0.3),
}


def noisy(seed, kinds, *, classes=2, n=300):
    """Return float32 rows of live features and then noise, shuffled classes that are apart, and the live features."""
    rng = np.random.default_rng(seed)
    z = rng.permutation(np.arange(n) % classes)
    live = structured(seed, n, LIVE) + 0.5 * rng.normal(size=(classes, len(LIVE)))[z]
    noise = np.stack([NOISE[kind](rng, n) for kind in kinds], axis=1)
    order = rng.permutation(len(LIVE) + len(kinds))
    return np.hstack([live, noise]).astype(np.float32)[:, order], z, np.flatnonzero(order < len(LIVE))


def erased(X, z):
    return rs.LEACE().fit(X, z)


def switched(X, z):
    return rs.MidSteer(source=0, target=1, gate="always").fit(X, z)


def continuous(X, z):
    return rs.LEACE(concept_type="continuous").fit(X, z.astype(float))


@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from([*NOISE]), min_size=1, max_size=4), st.integers(2, 4))
@pytest.mark.parametrize("fit", [erased, switched, continuous])
def test_noise_within_the_precision_of_the_rows_is_not_amplified(fit, seed, kinds, classes):
    X, z, live = noisy(seed, kinds, classes=classes)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GainWarning)  # the live features alone give no reason for one
        found, alone = fit(X, z), fit(np.ascontiguousarray(X[:, live]), z)
    assert found.certificate_.gain == pytest.approx(alone.certificate_.gain, rel=1e-3)
    W, w = found.map_.weight, alone.map_.weight
    assert_allclose(W[np.ix_(live, live)], w, rtol=1e-4, atol=1e-5)


@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from([*NOISE]), min_size=1, max_size=4))
def test_the_classes_coincide_in_noise_too(seed, kinds):
    X, z, _ = noisy(seed, kinds, classes=3)
    m = rs.LEACE().fit(X, z).map_
    means = np.stack([m(X[z == c].astype(np.float64)).mean(axis=0) for c in range(3)])
    assert np.ptp(means, axis=0).max() < 1e-12 * np.abs(X).max()


@pytest.mark.parametrize("kind", [*NOISE])
def test_noise_says_nothing_about_how_far_classes_pool(kind):
    X, z, live = noisy(3, [kind, kind])
    alphas = []
    for rows in (X, np.ascontiguousarray(X[:, live])):
        moments = rs.ClassMoments.of(rows, z)
        alphas.append(supported_alpha(moments[0], moments.total))
    assert alphas[0] == pytest.approx(alphas[1], rel=1e-6)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-9, 1e-6, 1e6]))
def test_a_small_measurement_in_float64_is_still_erased(seed, unit):
    """Counter-check: in float64 a column in another unit is far above rounding, and is whitened like any other."""
    X, z, _ = noisy(seed, ["constant"])
    X = X.astype(np.float64)
    rng = np.random.default_rng(seed)
    X = np.hstack([X, unit * (rng.normal(size=len(X)) + z)[:, None]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GainWarning)
        W = rs.LEACE().fit(X, z).map_.weight
    scale = np.ones(X.shape[1])
    scale[-1] = unit
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GainWarning)
        V = rs.LEACE().fit(X / scale, z).map_.weight
    assert_allclose(W / scale[:, None] * scale, V, rtol=1e-5, atol=1e-7)


def test_what_is_left_in_features_below_the_precision_is_said():
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1], 100)
    live = np.tile(
        rng.integers(-3, 4, size=(100, 3)), (2, 1)
    )  # both classes have the same rows: no gap to the last bit
    X = np.hstack([live, (1e-9 * (z + 0.1 * rng.normal(size=200)))[:, None]]).astype(np.float32)
    said = "feature 3 has a standard deviation of at most 5.* rescale them or pass float64 rows"
    with pytest.warns(ConstantFeatureWarning, match=said):
        rs.LEACE().fit(X, z)
    X[:, 3] = 0.25  # a feature without any gap gives no warning
    rs.LEACE().fit(X, z)


def test_warnings_and_errors_name_the_features_that_hardly_vary():
    X, z, live = noisy(0, ["beside"] * 7)
    thin = ", ".join(map(str, np.setdiff1d(np.arange(X.shape[1]), live)[:5]))
    with pytest.warns(GainWarning, match=f"Features {thin} and 2 more have a .* leave such features out, or choose"):
        rs.LEACE().fit(X.astype(np.float64), z)  # what were float32 rows once is no longer seen in the dtype
    X, z, _ = noisy(0, ["beside"] * 7, classes=3)
    with pytest.raises(SingularCovarianceError, match=r"features .* leave constant features out"):
        rs.MidSteer(source=0, target=1, neutral=2).fit(X, z)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("fit", [erased, switched, continuous])
@given(seed=st.integers(0, 2**32 - 1), offset=st.sampled_from([1e2, 1e4, 1e6]), n=st.sampled_from([8, 40]))
def test_a_column_that_is_another_one_at_an_offset_says_nothing_more(fit, dtype, seed, offset, n):
    rng = np.random.default_rng(seed)
    z = rng.permutation(np.arange(n) % 2)
    X = rng.normal(size=(n, 2)) + 0.5 * z[:, None]
    zeros = np.zeros((n, 12))
    wide = np.column_stack([X, X[:, 0] + offset, zeros]).astype(dtype)
    found, alone = fit(wide, z), fit(np.column_stack([X, X[:, 0], zeros]), z)
    resolution = float(np.finfo(dtype).eps) * offset  # the column is the other one up to this
    assert found.certificate_.gain == pytest.approx(alone.certificate_.gain, rel=0.01 + 4 * resolution)
    rows = wide.astype(np.float64)
    Y = found.map_.apply(rows)
    aim = rows[z == 1] if fit is switched else Y[z == 1]
    gap, before = (
        np.linalg.norm(A.mean(axis=0) - B.mean(axis=0)) for A, B in ((Y[z == 0], aim), (X[z == 0], X[z == 1]))
    )
    assert gap <= 1e-6 * before
