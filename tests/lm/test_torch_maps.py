import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier

import repsurgery as rs
from repsurgery.gates import ClassifierGate, LinearGate, MLPGate, QuadraticGate
from repsurgery.lm.steer.torch_maps import as_torch_gate, as_torch_map, compute_dtype
from tests.lm.tools import ROUNDING, assert_close

D = 16
rng = np.random.default_rng(0)
X = rng.normal(size=(30, D)).astype(np.float32)
MAPS = {
    "identity": rs.Identity(D),
    "translation": rs.Translation(rng.normal(size=D)),
    "diagonal": rs.Diagonal(rng.normal(size=D), rng.normal(size=D)),
    "low-rank": rs.LowRank(rng.normal(size=(D, 2)), rng.normal(size=(2, D)), rng.normal(size=D), 0.7),
    "dense": rs.Dense(rng.normal(size=(D, D)), rng.normal(size=D)),
}
GATES = {
    "linear": LinearGate((0, 1), rng.normal(size=(1, D)), rng.normal(size=1)),
    "linear, three classes": LinearGate((0, 1, 2), rng.normal(size=(3, D)), rng.normal(size=3)),
    "quadratic": QuadraticGate((0, 1), 0.1 * rng.normal(size=(2, D)), rng.normal(size=(2, D, D)) / D, np.zeros(2)),
    "mlp": MLPGate((0, 1), rng.normal(size=(D, 8)), rng.normal(size=8), rng.normal(size=(8, 1)), rng.normal(size=1)),
}


@pytest.mark.parametrize("kind", MAPS)
def test_a_torch_map_is_the_map_to_float32_rounding(kind):
    m = MAPS[kind]
    assert_close(as_torch_map(m)(torch.from_numpy(X)), m(X), rtol=ROUNDING)
    assert kind == "identity" or np.abs(m(X) - X).max() > 0.1


@pytest.mark.parametrize("kind", MAPS)
def test_a_torch_map_of_float64_rows_is_the_map_to_float64_rounding(kind):
    rows = X.astype(np.float64)
    found = as_torch_map(MAPS[kind])(torch.from_numpy(rows))
    assert found.dtype == torch.float64
    assert_close(found, MAPS[kind](rows), rtol=64 * np.finfo(float).eps)


def test_only_a_dense_map_is_worth_picking_rows_for():
    assert [kind for kind, m in MAPS.items() if not as_torch_map(m).cheap] == ["dense"]


@pytest.mark.parametrize("kind", GATES)
def test_a_torch_gate_decides_like_the_gate(kind):
    gate = GATES[kind]
    codes = as_torch_gate(gate)(torch.from_numpy(X)).numpy()
    assert np.array_equal(codes, gate.codes(X))
    assert len(set(codes.tolist())) > 1


def test_a_large_common_offset_changes_no_decision():
    # in float32 these scores would be off by about 1e7 * eps * 4 = 5, while they are of that order themselves
    g = rng.normal(size=(1, D))
    far = (1e7 + 2 * rng.normal(size=(300, D))).astype(np.float32)
    gate = LinearGate((0, 1), g, -g @ far.mean(axis=0, dtype=np.float64))
    assert np.array_equal(as_torch_gate(gate)(torch.from_numpy(far)).numpy(), gate.codes(far))
    in_float32 = torch.from_numpy(far) @ torch.from_numpy(g[0]).float() + float(gate.intercept[0]) >= 0
    assert not np.array_equal(in_float32.long().numpy(), gate.codes(far))


def test_a_classifier_gate_decides_on_the_host():
    classifier = DummyClassifier(strategy="constant", constant=1).fit(X, np.arange(30) % 2)
    assert as_torch_gate(ClassifierGate((0, 1), classifier))(torch.from_numpy(X)).tolist() == [1] * 30


def test_buffers_made_in_inference_mode_still_carry_gradients():
    m = as_torch_map(MAPS["dense"])
    with torch.inference_mode():
        m(torch.from_numpy(X))
    rows = torch.from_numpy(X).requires_grad_()
    m(rows).sum().backward()
    assert_close(rows.grad[0], MAPS["dense"].weight.sum(axis=0), rtol=ROUNDING)


def test_half_precision_is_computed_in_float32():
    assert compute_dtype(torch.bfloat16) == compute_dtype(torch.float16) == torch.float32
    assert compute_dtype(torch.float64) == torch.float64
