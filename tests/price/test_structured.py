"""The predicted divergence is ½ E‖F^½(Wh + b − h)‖² over the rows, whatever their columns and however few they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import repsurgery as rs
from repsurgery.price import Fisher
from repsurgery.steering.function import SteeringFunction
from tests.strategies import COLUMNS, DEPENDENT, EPS, structured, structured_rows

WIDE = np.longdouble
ROWS = {"max_rows": 24, "max_d": 7}


def metric(rng, d, spread):
    """Return a Fisher matrix whose diagonal spans 2^±spread."""
    J = rng.normal(size=(d + 1, d)) * np.exp2(rng.integers(-spread, spread + 1, size=d))
    return Fisher(100, J.T @ J)


def a_map(rng, d, kind):
    """Return a map of the kind that moves every column by about its own size, and mixes columns where it can."""
    b = rng.normal(size=d)
    match kind:
        case "translation":
            return rs.Translation(b)
        case "diagonal":
            return rs.Diagonal(1 + rng.normal(size=d), b)
        case "low-rank":
            return rs.LowRank(rng.normal(size=(d, 1)), rng.normal(size=(1, d)) / d, b, 1.0)
    return rs.Dense(np.eye(d) + rng.normal(size=(d, d)) / d, b)


def by_definition(F, m, X, w=None):
    """Return ½ E dᵀFd in the longest float, and how much rounding of the displacements may change it."""
    F, X = F.astype(WIDE), X.astype(WIDE)
    W, b = m.weight.astype(WIDE), m.bias.astype(WIDE)
    w = np.ones(len(X), dtype=WIDE) if w is None else w.astype(WIDE)
    D = X @ W.T + b - X
    size = np.abs(X) @ np.abs(W - np.eye(len(W))).T + np.abs(b)  # what a displacement is summed from
    rounding = 8 * (len(W) + 4) * EPS * (size + np.abs(X))
    root = np.abs(F)
    value = float(w @ np.einsum("ij,jk,ik->i", D, F, D) / w.sum()) / 2
    # the square of a displacement that is off by its rounding, under the sizes of F
    error = np.einsum("ij,jk,ik->i", 2 * np.abs(D) + rounding, root, rounding)
    products = len(W) ** 2 * EPS * np.einsum("ij,jk,ik->i", np.abs(D), root, np.abs(D))
    return value, float(w @ (error + 8 * products) / w.sum()) / 2


KINDS = ["translation", "diagonal", "low-rank", "dense"]


@pytest.mark.parametrize("kind", KINDS)
@given(data=structured_rows(**ROWS), seed=st.integers(0, 2**32 - 1))
def test_the_price_on_rows_is_its_definition(kind, data, seed):
    rng = np.random.default_rng(seed)
    d = data.X.shape[1]
    F, m = metric(rng, d, 8), a_map(rng, d, kind)
    X = data.X.astype(float)
    value, error = by_definition(F.matrix, m, X)
    assert abs(F.kl_on(m.apply, X) - value) <= error + 1e-300


def spread_of(X, w):
    """Return Σ of the rows by columns: their standard deviations (d,) in the longest float."""
    w = np.ones(len(X)) if w is None else w
    C = X.astype(WIDE) - X[0].astype(WIDE)
    C = C - w @ C / w.sum()
    return np.sqrt(w @ np.square(C) / w.sum()).astype(float)


@pytest.mark.parametrize("kind", KINDS)
@given(data=structured_rows(dtypes=(np.float64, np.int64), **ROWS), seed=st.integers(0, 2**32 - 1))
def test_the_price_from_moments_is_that_of_the_rows(kind, data, seed):
    rng = np.random.default_rng(seed)
    d = data.X.shape[1]
    F, m = metric(rng, d, 8), a_map(rng, d, kind)
    # in units in which each column matters: a Fisher matrix is large where states vary little
    unit = spread_of(data.X, data.w)
    unit = np.where(unit > 0, unit, 1.0)
    F = Fisher(100, F.matrix / unit / unit[:, None])
    if kind in ("low-rank", "dense"):
        E = (m.weight - np.eye(d)) * unit[:, None] / unit
        m = rs.Dense(np.eye(d) + E, m.bias * unit)
    else:
        m = rs.Translation(m.shift * unit) if kind == "translation" else rs.Diagonal(m.scale, m.offset * unit)
    value, error = by_definition(F.matrix, m, data.X.astype(float), data.w)
    moments = rs.Moments.of(data.X, sample_weight=data.w)
    # each column's variance is known to the rounding of its sums, and roots of singular covariances to √eps of it
    lost = (
        64 * (len(data.X) + d) * np.sqrt(EPS) * np.square(np.abs(m.weight - np.eye(d)) @ unit) @ np.diagonal(F.matrix)
    )
    assert abs(F.kl(m, moments) - value) <= error + lost * d + 1e-300


def test_the_price_of_rows_left_out_would_be_seen():
    # the counter-check: a tenth of the rows, and columns that vary little beside a wide one
    X = structured(0, 60, ("huge", "constant", "normal", "counts"))
    m = rs.Diagonal(np.array([1.0, 1.0, 2.0, 2.0]), np.zeros(4))
    F = Fisher(10, np.diag([1e-20, 1.0, 1.0, 1.0]))
    value, error = by_definition(F.matrix, m, X)
    assert value > 1e3 * error
    assert F.kl(m, rs.Moments.of(X)) == pytest.approx(value, rel=1e-9)
    assert F.kl(m, rs.Moments.of(X[:54])) != pytest.approx(value, rel=1e-3)


@given(structured_rows(classes=2, min_rows=2, **ROWS), st.integers(0, 2**32 - 1))
def test_several_gated_maps_cost_what_their_rows_cost(data, seed):
    rng = np.random.default_rng(seed)
    d = data.X.shape[1]
    F = metric(rng, d, 4)
    maps = {label: a_map(rng, d, "diagonal") for label in (0, 1)}
    gate = rs.build_gate("nearest-mean", data.X, data.z, sample_weight=data.w)
    function = SteeringFunction(maps, gate, (0, 1))
    X = data.X.astype(float)
    assigned = function.assign(X)
    share = {label: float(np.mean(assigned == label)) for label in maps}
    moments = {label: rs.Moments.of(X[assigned == label]) for label in maps if (assigned == label).any()}
    moments = {label: moments.get(label, rs.Moments.empty(d)) for label in maps}
    parts = [
        by_definition(F.matrix, m, X[assigned == label]) if share[label] else (0.0, 0.0) for label, m in maps.items()
    ]
    value = sum(share[label] * part[0] for label, part in zip(maps, parts, strict=True))
    error = sum(part[1] for part in parts)
    allowed = 64 * error + 1e-9 * value + 1e-300
    assert abs(F.kl_on(function, X) - value) <= allowed
    assert abs(F.kl(function, rs.ClassMoments(moments), share=share) - value) <= allowed


@given(structured_rows(weighted=False, **ROWS), st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 0.1, 30.0]))
def test_a_strength_spends_its_budget_on_the_rows(data, seed, budget):
    rng = np.random.default_rng(seed)
    d = data.X.shape[1]
    F, m = metric(rng, d, 4), a_map(rng, d, "dense")
    moments = rs.Moments.of(data.X)
    strength = F.strength(m, budget, moments)
    assert F.kl(m, moments, strength=strength) == pytest.approx(budget, rel=64 * EPS)
    value, error = by_definition(F.matrix, m.interpolate(strength), data.X.astype(float))
    assert value == pytest.approx(budget, rel=1e-6, abs=64 * error + 1e-6 * budget)


@given(structured_rows(min_rows=4, weighted=False, kinds=(*COLUMNS, *DEPENDENT), **ROWS), st.integers(1, 3))
def test_merged_matrices_weigh_by_positions(data, cut):
    X = data.X.astype(float)

    def fisher(rows):
        return Fisher(len(rows), rows.T @ rows / len(rows))

    merged, whole = fisher(X[:cut]) + fisher(X[cut:]), fisher(X)
    size = np.abs(X).T @ np.abs(X) / len(X)
    assert merged.count == whole.count
    assert (np.abs(merged.matrix - whole.matrix) <= 8 * len(X) * EPS * size + 1e-300).all()
