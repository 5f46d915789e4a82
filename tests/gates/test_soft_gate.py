import hashlib

import numpy as np
import pytest

import repsurgery as rs
from repsurgery.errors import LabelError, NonFiniteError, ParameterError, ShapeError, SurgeryError
from repsurgery.gates import LinearGate, QuadraticGate, SoftGate
from tests.lm.tools import random_map

D = 16
rng = np.random.default_rng(0)
X = rng.normal(size=(200, D))
COEF, INTERCEPT = rng.normal(size=(1, D)), np.array([0.3])
LINEAR = LinearGate((0, 1), COEF, INTERCEPT)
SCORES = LINEAR.scores(X)[:, 0]
M = random_map(D)


def soft(knots, strengths):
    return SoftGate((0, 1), COEF, INTERCEPT, np.array(knots, dtype=float), np.array(strengths, dtype=float))


def steering(gate, label=1):
    return rs.SteeringFunction({label: M}, gate, (0, 1))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_constant_strength_of_one_is_the_gate_always(dtype):
    rows = X.astype(dtype)
    always = rs.SteeringFunction({None: M})(rows)
    assert np.array_equal(steering(soft([0.0], [1.0]))(rows), always)
    assert np.array_equal(rs.SteeringFunction({None: M}, soft([-1, 2], [1, 1]))(rows), always)
    assert not np.array_equal(steering(soft([0.0], [0.9]))(rows), always)


@pytest.mark.parametrize("source", [0, 1])
def test_a_jump_is_the_linear_gate(source):
    # rows whose score is exactly at the jump belong to the second class, as in the linear gate
    rows = np.vstack([X, np.zeros((1, D))])
    cut = LinearGate((0, 1), COEF, np.zeros(1))
    jump = SoftGate((0, 1), COEF, np.zeros(1), np.zeros(2), np.array([1.0, 0.0] if source == 0 else [0.0, 1.0]))
    assert np.array_equal(steering(jump, source)(rows), steering(cut, source)(rows))
    assert np.array_equal(jump.predict(rows), cut.predict(rows))
    assert 0 < (jump.strength(rows) == 1).sum() < len(rows)
    assert not np.array_equal(steering(jump, source)(rows), steering(cut, 1 - source)(rows))


@pytest.mark.parametrize("strengths", [[0.0, 0.2, 0.2, 1.5], [2.0, 1.0, 1.0, 0.0]])
def test_the_strength_is_monotone_in_the_score(strengths):
    gate = soft([-2.0, 0.0, 0.0, 3.0], strengths)
    order = np.argsort(SCORES)
    found = gate.strength(X)[order]
    changes = np.diff(found) * np.sign(strengths[-1] - strengths[0])
    assert (changes >= 0).all()
    assert (changes > 0).any()
    assert min(strengths) <= found.min()
    assert found.max() <= max(strengths)


def test_the_strength_interpolates_between_its_knots():
    gate = soft([-2.0, 1.0, 3.0], [0.0, 0.5, 1.0])
    np.testing.assert_allclose(gate.strength(X), np.interp(SCORES, [-2.0, 1.0, 3.0], [0.0, 0.5, 1.0]), atol=1e-14)
    H = X + gate.strength(X)[:, None] * (M(X) - X)
    np.testing.assert_allclose(steering(gate)(X), H, atol=1e-13)
    untouched = gate.strength(X) == 0
    assert untouched.any()
    assert np.array_equal(steering(gate)(X)[untouched], X[untouched])


def test_half_strength_behind_a_soft_gate_is_half_of_its_move():
    gate = soft([-2.0, 3.0], [0.0, 1.0])
    moved = steering(gate)(X) - X
    np.testing.assert_allclose(steering(gate).interpolate(0.5)(X) - X, moved / 2, atol=1e-13)


def test_labels_decide_in_place_of_a_soft_gate():
    z = (SCORES > 0).astype(int)
    assert np.array_equal(steering(soft([0.0], [0.25]))(X, z), steering(LINEAR)(X, z))


def test_a_soft_gate_is_saved_bit_for_bit_and_its_digest_covers_the_strength(tmp_path):
    function = steering(soft([-2.0, 1.0, 3.0], [0.0, 0.5, 1.0]))
    rs.save(function, tmp_path / "soft.safetensors")
    again = rs.load(tmp_path / "soft.safetensors")
    assert isinstance(again.gate, SoftGate)
    assert again.digest() == function.digest()
    assert hashlib.sha256(again(X).tobytes()).digest() == hashlib.sha256(function(X).tobytes()).digest()
    rs.save(function.gate, tmp_path / "gate.safetensors")
    assert np.array_equal(rs.load(tmp_path / "gate.safetensors").strength(X), function.gate.strength(X))
    others = [soft([-2.0, 1.0, 3.1], [0.0, 0.5, 1.0]), soft([-2.0, 1.0, 3.0], [0.0, 0.4, 1.0])]
    assert len({function.digest(), *(steering(gate).digest() for gate in others)}) == 3


def test_an_estimator_takes_a_soft_gate_and_is_certified(tmp_path):
    z = (SCORES + rng.normal(size=len(X)) > 0).astype(int)
    gate = soft([-2.0, 3.0], [0.0, 1.0])
    est = rs.MeanMatching(source=1, target=0, gate=gate).fit(X, z)
    np.testing.assert_allclose(est.transform(X) - X, gate.strength(X)[:, None] * est.map_.shift, atol=1e-13)
    certificate = est.certify(X, z)
    assert certificate.youden is None  # a soft gate assigns no row, so that no law of its Youden index holds
    assert 0 < certificate.gated_mean_gap < certificate.by_source[1].mean_gap_before
    rs.save(est, tmp_path / "est.safetensors")
    assert np.array_equal(rs.load(tmp_path / "est.safetensors").transform(X), est.transform(X))


@pytest.mark.parametrize("strength", [0.5, 3.0])
def test_steering_softly_beyond_a_dtype_is_refused(strength):
    rows = np.full((2, D), 1e30, dtype=np.float32)
    far = rs.Diagonal(np.full(D, 2e8 if strength > 1 else 1e9), np.zeros(D))
    function = rs.SteeringFunction({1: far}, soft([0.0], [strength]), (0, 1))
    with pytest.raises(NonFiniteError, match=r"float32.*lower the strength"):
        function(rows)
    assert np.isfinite(function(rows.astype(np.float64))).all()
    assert np.isfinite(function(rows / 10)).all()


def test_what_a_soft_gate_cannot_do_is_refused():
    function = steering(soft([0.0], [0.5]))
    with pytest.raises(SurgeryError, match="do not show how strongly"):
        function.inverse(X)
    with pytest.raises(SurgeryError, match="do not show how strongly"):
        function.inverse(X, np.zeros(len(X), dtype=int))
    with pytest.raises(ParameterError, match="one strength for one map"):
        rs.SteeringFunction({0: M, 1: M}, soft([0.0], [0.5]), (0, 1))


@pytest.mark.parametrize(
    ("knots", "strengths", "error", "match"),
    [
        ([0, 1], [0], ShapeError, "one strength for each"),
        ([], [], ShapeError, "at least one knot"),
        ([1, 0], [0, 1], ParameterError, "sorted"),
        ([0, 1, 2], [0, 1, 0], ParameterError, "only rise or only fall"),
        ([0, np.inf], [0, 1], ParameterError, "finite"),
        ([0, 1], [-1, 1], ParameterError, "not negative"),
    ],
)
def test_a_strength_that_is_no_monotone_function_is_refused(knots, strengths, error, match):
    with pytest.raises(error, match=match):
        soft(knots, strengths)


def test_a_soft_gate_needs_one_score():
    with pytest.raises(ShapeError, match="one score"):
        SoftGate((0, 1), np.ones((2, D)), np.ones(2), np.zeros(1), np.ones(1))


@pytest.mark.parametrize("source", [0, 1])
@pytest.mark.parametrize(("low", "high"), [(0.5, 0.95), (0.0, 1.0), (0.9, 0.9), (0.2, 0.21)])
def test_a_calibrated_soft_gate_steers_the_stated_shares(source, low, high):
    gate = rs.calibrate_soft_gate(LINEAR, X, source=source, low=low, high=high, most=0.8)
    strength = gate.strength(X)
    towards = SCORES if source == 1 else -SCORES
    assert (np.diff(strength[np.argsort(towards)]) >= 0).all()
    # the quantile q of n rows lies at the place q (n − 1), counted from 0: between two rows, or on the first or last
    places = np.arange(len(X))
    assert (strength == 0.8).sum() == (places >= high * (len(X) - 1)).sum()
    assert (strength > 0).sum() == (places > low * (len(X) - 1)).sum()
    assert (strength == 0.8).sum() <= (1 - high) * len(X) + 1
    assert (strength > 0).sum() <= (1 - low) * len(X) + 1


@pytest.mark.parametrize(
    ("n", "low", "high", "steered", "full"),
    # a quantile on a row, and one between two rows, where the share itself is no whole number of rows
    [(5, 0.5, 0.75, 2, 2), (5, 0.5, 1.0, 2, 1), (2, 0.9, 0.9, 1, 1), (5, 0.75, 0.75, 2, 2)],
)
def test_a_calibrated_soft_gate_may_steer_one_row_more(n, low, high, steered, full):
    gate = LinearGate((0, 1), np.ones((1, 1)), np.zeros(1))
    rows = np.arange(float(n))[:, None]
    strength = rs.calibrate_soft_gate(gate, rows, source=1, low=low, high=high).strength(rows)
    assert ((strength > 0).sum(), (strength == 1).sum()) == (steered, full)
    assert (1 - high) * n < full <= (1 - high) * n + 1


def test_bad_calibrations_are_refused():
    with pytest.raises(LabelError, match="source is 2"):
        rs.calibrate_soft_gate(LINEAR, X, source=2)
    with pytest.raises(ParameterError, match="0 <= low <= high <= 1"):
        rs.calibrate_soft_gate(LINEAR, X, source=1, low=0.9, high=0.5)
    with pytest.raises(ParameterError, match="most is 0"):
        rs.calibrate_soft_gate(LINEAR, X, source=1, most=0)
    with pytest.raises(ParameterError, match="linear gate of two classes"):
        rs.calibrate_soft_gate(LinearGate((0, 1, 2), np.ones((3, D)), np.zeros(3)), X, source=1)
    quadratic = QuadraticGate((0, 1), np.zeros((2, D)), np.stack([np.eye(D)] * 2), np.zeros(2))
    with pytest.raises(ParameterError, match="linear gate of two classes"):
        rs.calibrate_soft_gate(quadratic, X, source=1)
    with pytest.raises(ShapeError):
        rs.calibrate_soft_gate(LINEAR, X[:, :3], source=1)
