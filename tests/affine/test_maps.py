import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import repsurgery as rs
from repsurgery.errors import (
    DataError,
    ExtrapolationWarning,
    NonFiniteError,
    ParameterError,
    ShapeError,
    SingularMapError,
)

D = 7
ROUNDING = 1e-12
KINDS = ["identity", "translation", "diagonal", "low-rank", "scaled-low-rank", "dense"]


def make(kind, seed=0):
    rng = np.random.default_rng(seed)
    match kind:
        case "identity":
            return rs.Identity(D)
        case "translation":
            return rs.Translation(rng.normal(size=D))
        case "diagonal":
            return rs.Diagonal(rng.uniform(0.5, 2, D), rng.normal(size=D))
        case "low-rank":
            return rs.LowRank(rng.normal(size=(D, 2)), rng.normal(size=(2, D)), rng.normal(size=D))
        case "scaled-low-rank":
            return rs.LowRank(rng.normal(size=(D, 3)), rng.normal(size=(3, D)), rng.normal(size=D), 0.7)
    return rs.Dense(np.eye(D) + rng.normal(size=(D, D)) / 4, rng.normal(size=D))


def dense(m, X):
    return X @ m.weight.T + m.bias


@pytest.mark.parametrize("kind", KINDS)
def test_every_structure_acts_as_its_dense_form(kind):
    m, X = make(kind), np.random.default_rng(1).normal(size=(5, D))
    assert_allclose(m(X), dense(m, X), atol=ROUNDING)
    assert_allclose(m(X[0]), m(X)[0], atol=ROUNDING)
    assert m.gain() == pytest.approx(np.linalg.norm(m.weight, 2), rel=1e-9)
    assert m.dim == D


@pytest.mark.parametrize("kind", KINDS)
@given(a=st.floats(-2, 2), seed=st.integers(0, 2**32 - 1))
def test_maps_are_affine(kind, a, seed):
    m = make(kind)
    x, y = np.random.default_rng(seed).normal(size=(2, D))
    assert_allclose(m(a * x + (1 - a) * y), a * m(x) + (1 - a) * m(y), atol=1e-10)


@pytest.mark.parametrize("outer", KINDS)
@pytest.mark.parametrize("inner", KINDS)
def test_composition_applies_the_right_factor_first(outer, inner):
    f, g = make(outer, 3), make(inner, 4)
    X = np.random.default_rng(5).normal(size=(6, D))
    assert_allclose((f @ g)(X), f(g(X)), atol=ROUNDING * 100)


def test_composition_keeps_structure():
    assert isinstance(make("translation") @ make("translation", 1), rs.Translation)
    assert isinstance(make("diagonal") @ make("translation"), rs.Diagonal)
    product = make("low-rank") @ make("scaled-low-rank")
    assert isinstance(product, rs.LowRank)
    assert product.rank == 5
    assert isinstance(make("dense") @ make("low-rank"), rs.Dense)
    wide = rs.LowRank(np.ones((3, 2)), np.ones((2, 3)), np.zeros(3))
    assert isinstance(wide @ wide, rs.Dense)


@pytest.mark.parametrize("kind", KINDS)
def test_the_inverse_undoes_the_map(kind):
    m, X = make(kind), np.random.default_rng(1).normal(size=(5, D))
    assert_allclose(m.inverse()(m(X)), X, atol=1e-9)
    assert_allclose(m(m.inverse()(X)), X, atol=1e-9)


@pytest.mark.parametrize(
    "flat",
    [
        rs.Diagonal(np.array([1.0, 0.0]), np.zeros(2)),
        rs.LowRank(-np.array([[1.0], [0.0]]), np.array([[1.0, 0.0]]), np.zeros(2)),
        rs.Dense(np.ones((2, 2)), np.zeros(2)),
    ],
)
def test_a_map_that_flattens_has_no_inverse_until_it_is_weakened(flat):
    with pytest.raises(SingularMapError, match="strength below 1"):
        flat.inverse()
    rs.interpolate(flat, 0.5).inverse()


@pytest.mark.parametrize("kind", KINDS)
@given(t=st.floats(0, 1))
def test_interpolation_is_the_straight_path_from_untouched_to_the_map(kind, t):
    m, X = make(kind), np.random.default_rng(1).normal(size=(5, D))
    path = rs.interpolate(m, t)
    assert type(path) is type(m)
    assert_allclose(path(X), (1 - t) * X + t * m(X), atol=ROUNDING)


def test_strengths_outside_the_geodesic_warn_and_nonsense_is_refused():
    m = make("translation")
    with pytest.warns(ExtrapolationWarning, match="no guarantee"):
        assert_allclose(rs.interpolate(m, 2.0).shift, 2 * m.shift)
    for bad in (np.nan, np.inf, "1", None, True):
        with pytest.raises(ParameterError, match="finite number"):
            rs.interpolate(m, bad)
    with pytest.raises(ParameterError, match="map or a steering function"):
        rs.interpolate(np.eye(2), 0.5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("given_dtype", "out"),
    [("float32", "float32"), ("float64", "float64"), ("int64", "float32"), ("float16", "float32")],
)
def test_dtypes_come_back_and_input_is_never_written(kind, given_dtype, out):
    X = np.arange(3 * D).reshape(3, D).astype(given_dtype)
    X.flags.writeable = False
    Y = make(kind)(X)
    assert Y.dtype == out
    assert not np.shares_memory(X, Y)
    assert_allclose(Y, dense(make(kind), X.astype(float)), rtol=1e-6, atol=1e-5)


def test_maps_are_frozen():
    m = make("dense")
    with pytest.raises(dataclasses.FrozenInstanceError):
        m.matrix = np.eye(D)
    with pytest.raises(ValueError, match="read-only"):
        m.weight[0, 0] = 1


def test_a_cast_rounds_the_numbers():
    m = make("dense")
    assert (m.astype(np.float16).weight == m.weight.astype(np.float16)).all()
    assert (m.astype(np.float16).weight != m.weight).any()
    assert isinstance(rs.Identity(3).astype(np.float16), rs.Identity)


def test_maps_refuse_what_does_not_fit():
    with pytest.raises(ShapeError, match="made for 7"):
        make("dense")(np.ones((2, 3)))
    with pytest.raises(ShapeError, match="cannot be composed"):
        make("dense") @ rs.Identity(3)
    with pytest.raises(ShapeError, match="needs"):
        rs.Dense(np.ones((2, 3)), np.zeros(2))
    with pytest.raises(ShapeError, match="left"):
        rs.LowRank(np.ones(2), np.ones(2), np.ones(2))
    with pytest.raises(DataError, match="NaN"):
        rs.Translation(np.array([np.nan]))
    with pytest.raises(DataError, match="row 1, column 0"):
        make("dense")(np.vstack([np.zeros(D), np.full(D, np.inf)]))


@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e-10, 1.0, 1e10, 1e100])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_gain_is_the_largest_singular_value_at_any_scale(scale, symmetric):
    rng = np.random.default_rng(0)
    W = rng.normal(size=(80, 80))
    W = W + W.T if symmetric else W / 10 + np.outer(rng.normal(size=80), rng.normal(size=80))
    expected = np.linalg.norm(W, 2)
    assert rs.Dense(scale * W, np.zeros(80)).gain() == pytest.approx(scale * expected, rel=1e-3)


@pytest.mark.parametrize(("dtype", "size"), [(np.float64, 1e300), (np.float32, 1e38), (np.float16, 6e4)])
@pytest.mark.filterwarnings("error")
def test_what_the_dtype_cannot_hold_is_refused_not_returned_as_infinity(dtype, size):
    X = np.full((3, 2), size, dtype=dtype)
    maps = [rs.Diagonal(np.full(2, 1e35), np.zeros(2)), rs.Dense(1e35 * np.eye(2), np.zeros(2))]
    for m in maps:
        with pytest.raises(NonFiniteError, match="Lower the strength"):
            m(X)
        with pytest.raises(NonFiniteError, match="Lower the strength"):
            rs.SteeringFunction({0: m}, classes=(0, 1))(X, np.array([0, 1, 0]))
        assert np.isfinite(m(np.ones((3, 2)))).all()


HUGE, TINY = np.full(2, 1e308), np.full(2, 1e-310)
MANY = [
    rs.Diagonal(HUGE, HUGE),
    rs.LowRank(HUGE[:, None] / 1e100, HUGE[None] / 1e210, HUGE, 1e308),
    rs.Dense(np.diag(HUGE), HUGE),
]


@pytest.mark.filterwarnings("error")
def test_what_leaves_float64_is_refused_with_its_remedy():
    for m in [*MANY, rs.Translation(HUGE)]:
        with pytest.raises(NonFiniteError, match=r"The interpolation overflows.* Lower the strength, or rescale"):
            m.interpolate(10.0)
        with pytest.raises(NonFiniteError, match=r"The rounding to float16 overflows.* Choose a wider dtype"):
            m.astype(np.float16)
        with pytest.raises(NonFiniteError, match=r"The composition overflows.* Lower the strength of the maps"):
            m @ m
        assert np.isfinite(m.interpolate(0.5).bias).all()
    for outer in MANY:
        for inner in MANY:
            with pytest.raises(NonFiniteError, match="The composition overflows"):
                outer @ inner
    for m in (
        rs.Diagonal(TINY, np.ones(2)),
        rs.LowRank(np.zeros((2, 1)), np.zeros((1, 2)), np.ones(2), 1e-310),
        rs.LowRank(np.full((2, 1), 1e200), np.full((1, 2), 1e200), np.ones(2)),
        rs.Dense(1e-200 * np.eye(2), np.full(2, 1e200)),
    ):
        with pytest.raises(NonFiniteError, match=r"The inverse overflows.* rescale the map"):
            m.inverse()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_map_of_numbers_that_are_not_finite_is_refused(bad):
    with pytest.raises(DataError, match=r"Diagonal\.scale holds NaN or infinity\. Give finite numbers"):
        rs.Diagonal(np.array([1.0, bad]), np.zeros(2))
