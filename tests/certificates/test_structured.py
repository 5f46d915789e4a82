"""Figures of certificates on structured rows equal their definitions, from moments and from rows, in any units."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import repsurgery as rs
from repsurgery.certificates.from_rows import logistic_probe, prior_entropy
from repsurgery.errors import LabelError, SurgeryWarning
from repsurgery.moments.closed_forms import least_squares_probe
from tests.estimators import ALL
from tests.oracles import two_pass
from tests.strategies import COLUMNS, DEPENDENT, EPS, share, structured, structured_rows

LIKE = tuple(kind for kind in COLUMNS if kind not in ("tiny", "huge", "nearly constant", "far"))
FEW = {"min_rows": 2, "max_rows": 24, "max_d": 6}


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def summary(X, w):
    mean, scatter = two_pass(X, w)
    return mean, scatter / (len(X) if w is None else w.sum())


@pytest.mark.parametrize("estimator", ALL)
@share(0.4)
@given(data=structured_rows(classes=2, **FEW))
def test_gaps_before_steering_are_those_of_two_passes(estimator, data):
    try:
        est = estimator().fit_moments(rs.ClassMoments.of(data.X, data.z, sample_weight=data.w, groups=data.groups))
    except LabelError:
        return  # MidSteer: no direction separates the classes
    (m0, S0), (m1, S1) = summary(*data.of(0)), summary(*data.of(1))
    record = est.certificate_.by_source[0]
    n, d = data.X.shape
    off = 8 * EPS * (np.abs(m0) + np.abs(m1)) + 64 * (n + d) * EPS * np.sqrt(np.diagonal(S0) + np.diagonal(S1))
    gap = np.linalg.norm(m0 - m1)
    assert record.mean_gap_before == pytest.approx(gap, abs=np.linalg.norm(off) + 64 * d * EPS * gap)
    ebbn = abs(np.trace(S0) - np.trace(S1) - gap**2)
    slack = 64 * (n + d) * EPS * (np.trace(S0) + np.trace(S1) + gap**2) + 2 * gap * np.linalg.norm(off)
    assert record.ebbn_before == pytest.approx(ebbn, abs=slack + 1e-300)
    norm = np.linalg.norm(S1)
    if norm > 0:
        distance = np.linalg.norm(S0 - S1)
        allowed = 256 * (n + d) * EPS * (np.linalg.norm(S0) + norm)
        assert record.covariance_gap_before * norm == pytest.approx(distance, abs=allowed)
    else:
        assert record.covariance_gap_before == (np.inf if np.trace(S0) > 0 else 0)
    counted = [len(data.of(c)[0]) if data.w is None else int((data.of(c)[1] > 0).sum()) for c in (0, 1)]
    assert [record.rows_source, record.rows_target] == counted


@given(structured_rows(classes=2, kinds=(*LIKE, *DEPENDENT), grouped=False, **FEW))
def test_the_least_squares_probe_explains_what_a_regression_explains(data):
    moments = rs.ClassMoments.of(data.X, data.z, sample_weight=data.w)
    w = np.ones(len(data.X)) if data.w is None else data.w
    X, z = data.X.astype(np.longdouble), data.z.astype(np.longdouble)
    X, z = X - w @ X / w.sum(), z - w @ z / w.sum()
    root = np.sqrt(w)
    A, b = (root[:, None] * X).astype(float), (root * z).astype(float)
    scale = np.linalg.norm(A, axis=0)
    A = A / np.where(scale > 1e-12 * np.abs(data.X.astype(float)).max(axis=0), scale, np.inf)
    values = np.linalg.svd(A, compute_uv=False)
    if ((values > 1e-13 * values[0]) & (values < 1e-6 * values[0])).any():
        return  # whether such a direction counts is a matter of the tolerance
    residual = b - A @ np.linalg.lstsq(A, b, rcond=1e-9)[0]
    explained = 1 - float(residual @ residual) / float(b @ b)
    assert least_squares_probe(list(moments.values())) == pytest.approx(explained, abs=1e-6)


def test_a_constant_column_explains_nothing():
    # in rounded weights, the mean of 1e6 and 1e6 differs from 1e6 by its last bit
    X = np.stack([np.full(9, 1e6), [0, 0, 0, 0, 0, 0, 0.4116305363741328, 1.0425133694426776, 0]], axis=1)
    z, w = np.repeat([0, 1], [4, 5]), np.array([0.25, 0.25, 0.25, 3, 3, 3, 1, 3, 1000])
    both, alone = (list(rs.ClassMoments.of(rows, z, sample_weight=w).values()) for rows in (X, X[:, 1:]))
    assert least_squares_probe(both) == pytest.approx(least_squares_probe(alone))
    assert least_squares_probe(both) < 1e-4


@share(0.3)
@given(structured_rows(classes=2, min_rows=4, max_rows=40, max_d=4, weighted=False, grouped=False), st.data())
def test_a_logistic_probe_reads_columns_in_any_unit_and_in_any_order(data, draw):
    d = data.X.shape[1]
    X = data.X.astype(float)
    powers = np.array([draw.draw(st.integers(-20, 20)) for _ in range(d)])
    order = draw.draw(st.permutations(range(d)))
    ratio = X.std(axis=0) / max(X.std(axis=0).max(), 1e-300)
    if (ratio < 2.0**-10).any():
        return
    plain = logistic_probe(X, data.z)
    assert logistic_probe(np.ldexp(X, powers)[:, order], data.z) == pytest.approx(plain, abs=2e-3)
    assert plain <= prior_entropy(data.z) + 1e-9


def test_a_wide_column_does_not_hide_from_a_probe_what_a_narrow_one_tells():
    X, z = structured(0, 400, ("huge", "normal", "normal", "zero")), np.arange(400) % 2
    X[:, 1] += z
    alone = logistic_probe(X[:, 1:3], z)
    assert alone < prior_entropy(z) - 0.05
    assert logistic_probe(X, z) == pytest.approx(alone, abs=5e-3)
    certificate = rs.DiagonalTransport().fit(X, z).certify(X, z)
    assert certificate.by_source[0].probe_loss == pytest.approx(prior_entropy(z), abs=1e-6)


@share(0.5)
@given(structured_rows(classes=2, weighted=False, dtypes=(np.float64,), **FEW), st.data())
def test_the_order_of_rows_and_columns_changes_no_figure(data, draw):
    rows = np.array(draw.draw(st.permutations(range(len(data.X)))))
    columns = np.array(draw.draw(st.permutations(range(data.X.shape[1]))))
    plain = rs.DiagonalTransport().fit(data.X, data.z).certificate_.by_source[0]
    other = rs.DiagonalTransport().fit(data.X[rows][:, columns], data.z[rows]).certificate_.by_source[0]
    X = data.X.astype(float)
    size = np.abs(X).max() * max(plain.gain, 1.0) * X.shape[1]
    for name, power in (("mean_gap", 1), ("mean_gap_before", 1), ("ebbn", 2), ("ebbn_before", 2), ("cost", 2)):
        slack = 256 * sum(X.shape) * EPS * size**power
        assert getattr(other, name) == pytest.approx(getattr(plain, name), abs=slack + 1e-300)
    assert (other.rank_source, other.feasible) == (plain.rank_source, plain.feasible)


@pytest.mark.parametrize("estimator", ALL)
def test_a_certificate_of_other_rows_has_other_figures(estimator):
    # the counter-check: the figures are those of the rows that were measured
    X, z = structured(0, 60, ("counts", "sparse", "normal", "same")), np.repeat([0, 1], 30)
    X[z == 1, 0] += 1
    est = estimator().fit(X, z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SurgeryWarning)
        moved = est.certify(np.where(z[:, None] == 0, X + np.array([0.5, 0, 0, 0]), X), z)
    before = est.certificate_.by_source[0].mean_gap_before
    assert moved.by_source[0].mean_gap_before != pytest.approx(before, rel=1e-3)
