"""Maps whose numbers lie far apart act as their dense form in exact arithmetic, up to the rounding of each entry."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import repsurgery as rs
from repsurgery.errors import SingularMapError
from tests.strategies import EPS, structured_rows

TINY = float(np.finfo(np.float64).tiny)
ROWS = {"max_rows": 12, "max_d": 6, "weighted": False, "grouped": False}


@st.composite
def maps(draw, d):
    """Draw a map on d features of any structure, with rows and columns of scales from 2⁻³⁰ to 2³⁰, and some zeros."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def numbers(*shape):
        values = rng.normal(size=shape) * (rng.random(shape) < 0.8)
        return np.ldexp(values, rng.integers(-30, 31, size=shape[:1] + (1,) * (len(shape) - 1)))

    kind = draw(st.sampled_from(["identity", "translation", "diagonal", "low-rank", "dense"]))
    match kind:
        case "identity":
            return rs.Identity(d)
        case "translation":
            return rs.Translation(numbers(d))
        case "diagonal":
            return rs.Diagonal(numbers(d), numbers(d))
        case "low-rank":
            r = draw(st.integers(0, d))
            return rs.LowRank(numbers(d, r), numbers(d, r).T, numbers(d), draw(st.sampled_from([1.0, 0.0, -0.5, 3.0])))
    return rs.Dense(numbers(d, d), numbers(d))


@st.composite
def maps_and_rows(draw, number=1):
    """Draw maps, and rows for them to act on."""
    X = draw(structured_rows(**ROWS)).X
    return [draw(maps(X.shape[1])) for _ in range(number)], X


def dense(m):
    """Return W, b and |W| as the sum of the absolute values of what W is computed from, in the longest float."""
    wide = {name: np.asarray(array, dtype=np.longdouble) for name, array in m.arrays().items()}
    match m.kind:
        case "identity":
            W, b = np.eye(m.dim, dtype=np.longdouble), np.zeros(m.dim, dtype=np.longdouble)
        case "translation":
            W, b = np.eye(m.dim, dtype=np.longdouble), wide["shift"]
        case "diagonal":
            W, b = np.diag(wide["scale"]), wide["offset"]
        case "low-rank":
            W = wide["left"] @ wide["right"] + wide["scale"] * np.eye(m.dim)
            size = np.abs(wide["left"]) @ np.abs(wide["right"]) + abs(wide["scale"]) * np.eye(m.dim)
            return W, wide["offset"], size
        case "dense":
            W, b = wide["matrix"], wide["offset"]
    return W, b, np.abs(W)


def assert_within(found, exact, size, terms):
    """Check every entry against the rounding of a sum of so many terms of the given sizes."""
    allowed = 4 * (terms + 4) * EPS * size + TINY
    assert (np.abs(np.asarray(found, dtype=np.longdouble) - exact) <= allowed).all()


@given(maps_and_rows())
def test_rows_are_mapped_as_the_dense_form_maps_them(drawn):
    (m,), X = drawn
    W, b, size = dense(m)
    d = m.dim
    rows = X.astype(np.longdouble)
    assert_within(m.weight, W, size, d)
    assert_within(m.bias, b, np.abs(b), 1)
    exact = rows @ W.T + b
    most = np.abs(rows) @ size.T + np.abs(b)
    assert_within(m.linear(X.astype(float)), rows @ W.T, np.abs(rows) @ size.T, 2 * d)
    found = m(X)
    # float32 rows are mapped in float64 and rounded once; integers come back as float32
    rounding = 0.0 if found.dtype == np.float64 else np.finfo(np.float32).eps
    allowed = 4 * (2 * d + 4) * EPS * most + rounding * np.abs(exact) + np.finfo(found.dtype).tiny
    assert (np.abs(found.astype(np.longdouble) - exact) <= allowed).all()
    V = np.asarray(X[:3].astype(float).T)
    assert_within(m.pullback(V), W.T @ V.astype(np.longdouble), size.T @ np.abs(V), 2 * d)


@given(maps_and_rows(2))
def test_a_composition_is_one_map_after_the_other(drawn):
    (f, g), X = drawn
    (F, a, f_size), (G, b, g_size) = dense(f), dense(g)
    d = f.dim
    both = f @ g
    assert_within(both.weight, F @ G, f_size @ g_size, 4 * d)
    assert_within(both.bias, F @ b + a, f_size @ np.abs(b) + np.abs(a), 2 * d)
    rows = X.astype(np.longdouble)
    size = (np.abs(rows) @ g_size.T + np.abs(b)) @ f_size.T + np.abs(a)
    assert_within(both.linear(X.astype(float)) + both.bias, (rows @ G.T + b) @ F.T + a, size, 6 * d)


@given(maps_and_rows(), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_an_interpolation_is_the_straight_path(drawn, t):
    (m,), _ = drawn
    W, b, size = dense(m)
    part = m.interpolate(t)
    assert_within(part.weight, (1 - t) * np.eye(m.dim) + t * W, (1 - t) * np.eye(m.dim) + t * size, m.dim + 2)
    assert_within(part.bias, t * b, np.abs(b), 1)
    assert part.kind == m.kind


def exact_inverse(W):
    with mpmath.workprec(400):
        M = mpmath.matrix([[mpmath.mpf(str(v)) for v in row] for row in W.tolist()])
        inverse = mpmath.inverse(M)
        return np.array([[float(inverse[i, j]) for j in range(len(W))] for i in range(len(W))])


@given(maps_and_rows())
def test_the_inverse_undoes_the_map_or_the_map_is_singular(drawn):
    (m,), _ = drawn
    W, _, size = dense(m)
    d = m.dim
    try:
        back = m.inverse()
    except SingularMapError:
        if m.kind == "low-rank" and m.scale == 0:
            return  # of rank d it has an inverse, which is not of this structure
        values = np.linalg.svd(W.astype(float), compute_uv=False)
        inner = 1.0 if m.kind != "low-rank" else np.linalg.norm(m.left, 2) * np.linalg.norm(m.right, 2) + abs(m.scale)
        # some direction is flattened, in relation to the largest number that the map is made of
        assert values[-1] <= 4 * d**2 * EPS * max(values[0], inner, abs(float(np.max(size)))) * max(1.0, inner)
        return
    inverse, _, back_size = dense(back)
    # each column solves a system whose matrix is off by a few roundings of its norm; Woodbury's formula does so twice
    factor = float(np.linalg.norm(size.astype(float)) * np.linalg.norm(back_size.astype(float)))
    allowed = 64 * d * EPS * (factor + (factor**2 if m.kind == "low-rank" else 0.0))
    assert np.linalg.norm((W @ inverse - np.eye(d)).astype(float)) <= allowed
    if m.kind in ("diagonal", "translation", "identity"):
        assert_allclose(back.weight, exact_inverse(m.weight), rtol=4 * EPS)


@given(maps_and_rows())
def test_gain_and_singular_values_are_those_of_the_dense_form(drawn):
    (m,), _ = drawn
    W, _, size = dense(m)
    values = np.linalg.svd(W.astype(float), compute_uv=False)
    slack = 64 * m.dim * EPS * float(np.linalg.norm(size.astype(float), 2))
    assert_allclose(m.singular_values(), values, rtol=0, atol=slack)
    assert m.gain() == pytest.approx(values[0], rel=1e-3, abs=slack)


@given(maps_and_rows(), st.data())
def test_powers_of_two_of_the_columns_pass_through_every_map(drawn, draw):
    # D ∘ m ∘ D⁻¹ on rescaled rows is m on the rows, to the bit, because powers of two round nothing
    (m,), X = drawn
    powers = np.array([draw.draw(st.integers(-20, 20)) for _ in range(m.dim)])
    rows = X.astype(float)
    match m.kind:
        case "identity" | "translation" | "diagonal":
            scaled = {k: v if k in ("size", "scale") else np.ldexp(v, powers) for k, v in m.arrays().items()}
        case "low-rank":
            scaled = m.arrays() | {
                "left": np.ldexp(m.left, powers[:, None]),
                "right": np.ldexp(m.right, -powers),
                "offset": np.ldexp(m.offset, powers),
            }
        case "dense":
            scaled = {"matrix": np.ldexp(m.matrix, powers[:, None] - powers), "offset": np.ldexp(m.offset, powers)}
    other = type(m)(**{k: int(v) if k == "size" else v for k, v in scaled.items()})
    assert_array_equal(other.apply(np.ldexp(rows, powers)), np.ldexp(m.apply(rows), powers))


def test_a_map_of_other_numbers_is_told_apart():
    # the counter-check of the tolerance: one entry in a million of the smallest column
    m = rs.Dense(np.diag([1e8, 1e-8]), np.zeros(2))
    W, _, size = dense(m)
    with pytest.raises(AssertionError):
        assert_within(rs.Dense(np.diag([1e8, 1e-8 * (1 + 1e-6)]), np.zeros(2)).weight, W, size, 2)
