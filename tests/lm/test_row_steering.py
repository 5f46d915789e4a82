import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery.errors import NonFiniteError, ParameterError, ShapeError
from repsurgery.gates import LabelsGate, LinearGate
from repsurgery.lm.steer.row_steering import RowSteering, as_steering
from tests.lm.tools import ROUNDING, assert_close, random_map

D = 16
rng = np.random.default_rng(0)
X = rng.normal(size=(40, D)).astype(np.float32)


def share_gate(share):
    """Return a gate that puts this share of the rows of X into class 1."""
    g = rng.normal(size=D)
    scores = np.sort(X @ g)
    cut = round(len(X) * (1 - share))
    bounds = np.concatenate([[scores[0] - 1], (scores[1:] + scores[:-1]) / 2, [scores[-1] + 1]])
    return LinearGate((0, 1), g[None], -bounds[cut : cut + 1])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("m", [random_map(), rs.Translation(np.ones(D))], ids=["dense", "translation"])
def test_rows_are_steered_as_the_function_steers_them(share, m):
    steering = rs.SteeringFunction({1: m}, share_gate(share), (0, 1))
    found = RowSteering(steering, name="test")(torch.from_numpy(X)).numpy()
    assert_close(found, steering(X), rtol=ROUNDING)
    moved = (steering(X) != X).any(axis=1)
    assert moved.sum() == round(share * len(X))
    assert np.array_equal(found[~moved], X[~moved])


def test_every_class_has_its_own_map():
    gate = LinearGate((0, 1, 2), rng.normal(size=(3, D)), np.zeros(3))
    steering = rs.SteeringFunction({0: random_map(seed=1), 2: random_map(seed=2)}, gate, (0, 1, 2))
    found = RowSteering(steering, name="test")(torch.from_numpy(X)).numpy()
    assert_close(found, steering(X), rtol=ROUNDING)
    assert len(set(gate.codes(X).tolist())) == 3


def test_the_input_is_not_written_to():
    rows = torch.from_numpy(X.copy())
    RowSteering(as_steering(random_map()), name="test")(rows)
    assert np.array_equal(rows.numpy(), X)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rows_are_mapped_in_float32_and_rounded_once(dtype):
    m = random_map()
    rows = torch.from_numpy(X).to(dtype)
    found = RowSteering(as_steering(m), name="test")(rows)
    assert found.dtype == dtype
    exact = torch.from_numpy(m(rows.float().numpy()))
    half_an_ulp = torch.finfo(dtype).eps / 2
    assert ((found.float() - exact).abs() <= (half_an_ulp + ROUNDING) * exact.abs() + ROUNDING * 16).all()


def test_a_map_out_of_range_says_so():
    with pytest.raises(NonFiniteError, match="Lower the strength"):
        RowSteering(as_steering(rs.Translation(np.full(D, 1e5))), name="test")(torch.from_numpy(X).half())
    with pytest.raises(NonFiniteError, match="Lower the strength"):
        RowSteering(as_steering(rs.Diagonal(np.full(D, 1e300), np.zeros(D))), name="test")(torch.from_numpy(X))


def test_a_state_that_was_never_finite_is_not_the_map_s_fault():
    rows = torch.from_numpy(X.copy())
    rows[3, 2] = float("nan")
    with pytest.raises(NonFiniteError, match="received a state with NaN or infinity"):
        RowSteering(as_steering(random_map()), name="test")(rows)


def test_a_non_finite_row_outside_the_gate_is_left_alone():
    rows = torch.from_numpy(np.vstack([X, np.full((1, D), np.inf, dtype=np.float32)]))
    gate = LinearGate((0, 1), np.ones((1, D)), np.zeros(1))
    flipped = LinearGate((0, 1), -np.ones((1, D)), np.zeros(1))
    for m in (random_map(), rs.Translation(np.ones(D))):
        RowSteering(rs.SteeringFunction({1: m}, flipped, (0, 1)), name="test")(rows)
        with pytest.raises(NonFiniteError):
            RowSteering(rs.SteeringFunction({1: m}, gate, (0, 1)), name="test")(rows)


def test_another_width_is_refused():
    with pytest.raises(ShapeError, match="made for 16 features; the state there has 4"):
        RowSteering(as_steering(random_map()), name="test")(torch.zeros(2, 4))


def test_a_label_gate_has_nothing_to_read_from_tokens():
    with pytest.raises(ParameterError, match=r"estimator\.map_"):
        as_steering(rs.SteeringFunction({1: random_map()}, LabelsGate((0, 1)), (0, 1)))


def test_an_estimator_steers_by_its_steering_function():
    estimator = rs.MeanMatching(source=0, target=1).fit(X, np.arange(40) % 2)
    assert as_steering(estimator) is estimator.steering_


def test_what_is_no_steering_is_refused():
    with pytest.raises(ParameterError, match="fitted estimator"):
        as_steering(np.ones(3))
