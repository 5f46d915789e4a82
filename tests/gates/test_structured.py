"""Gates decide as their definitions do in the longest float, outside of rounding, on rows as they really are."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import repsurgery as rs
from repsurgery.errors import SingularCovarianceError
from repsurgery.gates import SoftGate
from repsurgery.gates.rules import LinearGate
from tests.oracles import two_pass
from tests.strategies import COLUMNS, DEPENDENT, EPS, share, structured, structured_rows

LIKE = tuple(kind for kind in COLUMNS if kind not in ("tiny", "huge", "nearly constant"))
ROWS = {"min_rows": 2, "max_rows": 24, "max_d": 6, "grouped": False}
WIDE = np.longdouble


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def built(name, data, **options):
    return rs.build_gate(name, data.X, data.z, sample_weight=data.w, **options)


def means_of(data):
    """Return the class means (k, d) by two passes."""
    return np.array([two_pass(*data.of(label))[0] for label in sorted(set(data.z))], dtype=WIDE)


def assert_decides(found, scores, margin):
    """Check that each row (n,) got the class of the highest score (n, k), wherever it leads by more than ``margin``."""
    order = np.sort(scores, axis=1)
    clear = order[:, -1] - order[:, -2] > margin
    assert_array_equal(found[clear], scores.argmax(axis=1)[clear])
    return clear


@given(structured_rows(classes=2, **ROWS) | structured_rows(classes=3, **ROWS))
def test_the_nearest_mean_is_the_nearest(data):
    gate = built("nearest-mean", data)
    X, means = data.X.astype(WIDE), means_of(data)
    distances = np.square(X[:, None] - means).sum(axis=2)
    # the sizes of the products that a score is summed from: rows and means times the differences of means
    size = (np.abs(X[:, None]) + np.abs(means).max(axis=0)) * np.abs(means - means.mean(axis=0)).max(axis=0)
    margin = 32 * (X.shape[1] + 4) * EPS * size.sum(axis=2).max(axis=1)
    # means are known to the rounding of their sizes, which counts as often as a row is far from them
    margin += 32 * EPS * (np.abs(X - means[0]) @ np.abs(means).max(axis=0)) + np.finfo(float).tiny
    assert_decides(gate.predict(data.X), -distances / 2, margin)


def test_a_gate_of_other_means_decides_otherwise():
    X = structured(0, 60, ("counts", "sparse", "normal"))
    z = np.repeat([0, 1], 30)
    X[:30] += 0.5
    gate = rs.build_gate("nearest-mean", X, z)
    means = np.array([X[:30].mean(0), X[30:].mean(0)])
    distances = -np.square(X[:, None] - means).sum(axis=2)
    assert assert_decides(gate.predict(X), distances, 1e-9).all()
    with pytest.raises(AssertionError):
        assert_decides(gate.predict(X), distances[:, ::-1], 1e-9)


def log_posteriors(data, pooled):
    """Return the Gaussian log-posteriors (n, k) of every row, and the largest condition number of a correlation."""
    X, labels = data.X.astype(float), sorted(set(data.z))
    weights = np.array([len(data.of(c)[0]) if data.w is None else data.of(c)[1].sum() for c in labels])
    parts = [two_pass(*data.of(c)) for c in labels]
    covariances = [S / w for (_, S), w in zip(parts, weights, strict=True)]
    if pooled:
        covariances = [sum(w * S for w, S in zip(weights, covariances, strict=True)) / weights.sum()] * len(labels)
    scores, condition = [], 1.0
    for (mean, _), S, w in zip(parts, covariances, weights, strict=True):
        scale = np.sqrt(np.diagonal(S))
        C = S / scale / scale[:, None]
        condition = max(condition, np.linalg.cond(C))
        if not condition < 1 / EPS:
            return None, np.inf
        U = (X - mean) / scale
        squares = (U * np.linalg.solve(C, U.T).T).sum(axis=1)
        logdet = 0.0 if pooled else np.linalg.slogdet(C)[1] + 2 * np.log(scale).sum()
        scores.append(np.log(w / weights.sum()) - 0.5 * squares - 0.5 * logdet)
    return np.stack(scores, axis=1), condition


@pytest.mark.parametrize("name", ["lda", "qda"])
@given(data=structured_rows(classes=2, kinds=("sparse", "counts", "normal", "tied", "far", "sum"), **ROWS))
def test_discriminants_decide_by_gaussian_posteriors_or_say_that_they_cannot(name, data):
    try:
        gate = built(name, data)
    except SingularCovarianceError as error:
        assert "shrinkage" in str(error)
        with np.errstate(all="ignore"):
            try:
                condition = log_posteriors(data, name == "lda")[1]
            except np.linalg.LinAlgError:
                return
        assert not condition < 1e5
        return
    scores, condition = log_posteriors(data, name == "lda")
    if scores is None:
        return  # the condition is a matter of rounding
    offset = np.abs(data.X.astype(float)).max() ** 2
    margin = 256 * data.X.shape[1] * EPS * condition * (1 + np.abs(scores).max(axis=1) + offset)
    assert_decides(gate.predict(data.X), scores, margin)


@given(structured_rows(classes=2, kinds=("sparse", "counts", "normal", "tied"), weighted=False, **ROWS), st.data())
def test_discriminants_do_not_depend_on_the_units_of_the_columns(data, draw):
    powers = np.array([draw.draw(st.integers(-30, 30)) for _ in range(data.X.shape[1])])
    rows = data._replace(X=data.X.astype(float))
    scaled = rows._replace(X=np.ldexp(rows.X, powers))
    for name in ("lda", "qda"):
        try:
            plain = built(name, rows)
        except SingularCovarianceError:
            with pytest.raises(SingularCovarianceError):
                built(name, scaled)
            continue
        assert_array_equal(built(name, scaled).predict(scaled.X), plain.predict(rows.X))


def scores_of(gate, X):
    return X.astype(float) @ gate.coef[0] + gate.intercept[0]


@share(0.3)
@given(structured_rows(classes=2, kinds=(*LIKE, *DEPENDENT), dtypes=(np.float64,), **ROWS))
def test_a_constant_column_does_not_enter_logistic_regression(data):
    gate = built("logistic", data)
    counted = np.ones(len(data.X), bool) if data.w is None else data.w > 0
    constant = (data.X[counted] == data.X[counted][0]).all(axis=0)
    assert (gate.coef[0][constant] == 0).all()
    varying = np.flatnonzero(~constant)
    if len(varying):
        others = built("logistic", data._replace(X=data.X[:, varying]))
        assert_allclose(scores_of(gate, data.X), scores_of(others, data.X[:, varying]), rtol=1e-3, atol=1e-3)


@share(0.3)
@given(
    structured_rows(classes=2, kinds=("sparse", "counts", "normal", "tied", "far"), weighted=False, **ROWS), st.data()
)
def test_a_weight_of_two_is_a_row_twice_for_logistic_regression(data, draw):
    n = len(data.X)
    twice = np.array(draw.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    repeated = np.repeat(np.arange(n), 1 + twice)
    a = built("logistic", data._replace(w=1.0 + twice))
    b = built("logistic", data._replace(X=data.X[repeated], z=data.z[repeated]))
    assert_allclose(scores_of(a, data.X), scores_of(b, data.X), rtol=2e-3, atol=2e-3)  # lbfgs stops at 1e-4


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["nearest-mean", "lda", "qda", "logistic", "mlp"])
def test_what_rows_of_weight_zero_hold_changes_no_gate(name, value):
    X, z = structured(0, 60, ("counts", "sparse", "normal", "tied")), np.repeat([0, 1], 30)
    w = np.ones(60)
    w[[3, 40]] = 0
    options = {"random_state": 0} if name == "mlp" else {}
    right = rs.build_gate(name, np.delete(X, [3, 40], axis=0), np.delete(z, [3, 40]), **options)
    X[[3, 40], 1] = value
    found = rs.build_gate(name, X, z, sample_weight=w, **options)
    steering = rs.MeanMatching(gate=name, random_state=0).fit(X, z, sample_weight=w)
    kept = np.delete(X, [3, 40], axis=0)
    for gate in (found, steering.steering_.gate):
        assert_array_equal(gate.predict(kept), right.predict(kept))


@st.composite
def soft_gates(draw, d):
    """Draw a soft gate with knots of any distance, jumps included, and coefficients of any scale."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    coef = np.ldexp(rng.normal(size=(1, d)), rng.integers(-20, 21, size=d))
    number = draw(st.integers(1, 5))
    knots = np.sort(
        draw(st.lists(st.sampled_from([-1e6, -1.0, 0.0, 0.0, 1e-9, 2.0, 1e8]), min_size=number, max_size=number))
    )
    strengths = np.sort(rng.choice([0.0, 0.0, 0.25, 1.0, 2.0], size=number))
    return SoftGate((0, 1), coef, rng.normal(size=1), knots, strengths[:: draw(st.sampled_from([1, -1]))])


@given(structured_rows(weighted=False, grouped=False, max_d=5), st.data())
def test_the_strength_is_the_piecewise_line_of_its_definition(data, draw):
    gate = draw.draw(soft_gates(data.X.shape[1]))
    X = data.X.astype(WIDE)
    score = (X @ gate.coef[0].astype(WIDE)) + gate.intercept[0]
    rounding = 4 * (X.shape[1] + 4) * EPS * (np.abs(X) @ np.abs(gate.coef[0]) + np.abs(gate.intercept[0]))
    knots, strengths = gate.knots, gate.strengths

    def line(s):
        """Return the strength at a score by its definition: at a jump the later strength counts."""
        if s < knots[0]:
            return strengths[0]
        i = max(j for j in range(len(knots)) if knots[j] <= s)
        if i == len(knots) - 1:
            return strengths[i]
        return strengths[i] + (s - knots[i]) / (knots[i + 1] - knots[i]) * (strengths[i + 1] - strengths[i])

    found = gate.strength(data.X.astype(float))
    for s, f, r in zip(score, found, rounding, strict=True):
        low, high = sorted((line(s - r), line(s + r)))
        assert low - 1e-12 <= f <= high + 1e-12
    assert found.min() >= strengths.min() and found.max() <= strengths.max()


@given(structured_rows(classes=2, **ROWS), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.sampled_from([0, 1]))
def test_a_calibrated_gate_never_exceeds_its_rate_on_ties_and_large_columns(data, rate, source):
    gate = built("nearest-mean", data)
    rows = data.X.astype(float)
    calibrated = rs.calibrate_gate(gate, rows, source=source, rate=rate)
    assert isinstance(calibrated, LinearGate)
    assert (calibrated.predict(rows) == source).sum() <= rate * len(rows) + 1e-9
    assert (calibrated.predict(rows[::-1]) == source).sum() <= rate * len(rows) + 1e-9
