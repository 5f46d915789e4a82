import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import FoldError, NonFiniteError
from repsurgery.gates import SoftGate
from repsurgery.lm.steer.row_steering import RowSteering
from tests.lm.tiny_models import texts
from tests.lm.tools import DEPTH, ROUNDING, assert_close, prompts, random_map, run, split_gate, states

D = 16
rng = np.random.default_rng(0)
X = rng.normal(size=(40, D)).astype(np.float32)


def soft_at(model, site, *, most=1.0):
    """Return a soft gate whose strength is 0, partial and ``most`` at some of the positions of `prompts`."""
    ids, mask = prompts()
    linear = split_gate(model, site, ids, mask)
    rows = states(model, site, ids, mask)[mask.bool()].numpy()
    return rs.calibrate_soft_gate(linear, rows, source=1, low=0.3, high=0.7, most=most), rows


@pytest.mark.parametrize("m", [random_map(), rs.Translation(np.ones(D)), rs.Diagonal(np.full(D, 2.0), np.ones(D))])
@pytest.mark.parametrize("n", [1, 2, 40])
def test_rows_are_steered_as_softly_as_the_function_steers_them(m, n):
    gate = SoftGate((0, 1), rng.normal(size=(1, D)), np.zeros(1), np.array([-2, 0, 0, 2.0]), np.array([0, 0.2, 0.5, 1]))
    steering = rs.SteeringFunction({1: m}, gate, (0, 1))
    found, total = RowSteering(steering, name="test").counted(torch.from_numpy(X[:n]))
    assert_close(found.numpy(), steering(X[:n]), rtol=ROUNDING)
    assert_close(total, gate.strength(X[:n]).sum(), rtol=ROUNDING)
    untouched = gate.strength(X[:n]) == 0
    assert np.array_equal(found.numpy()[untouched], X[:n][untouched])


@pytest.mark.parametrize("site", ["final", "layers.0"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_soft_steering_of_a_model_is_that_of_its_rows(model, site, side):
    gate, rows = soft_at(model, site)
    assert {0.0, 1.0} < set(gate.strength(rows))
    steering = rs.SteeringFunction({1: random_map()}, gate, (0, 1))
    ids, mask = prompts(side)
    kept = mask.bool()
    before = states(model, site, ids, mask)[kept].numpy()
    with lm.steer(model, {site: steering}) as steered:
        after = states(model, site, ids, mask)[kept].numpy()
    assert_close(after, steering(before), rtol=DEPTH)
    assert np.abs(after - before).max() > 0.1
    assert steered.steered_share[site] == pytest.approx(gate.strength(before).mean(), abs=1e-5)


@pytest.mark.parametrize("site", ["final", "layers.0"])
def test_cached_and_batched_generation_is_steered_as_softly(model, tokenizer, site):
    gate, _ = soft_at(model, site)
    steering = {site: rs.SteeringFunction({1: random_map()}, gate, (0, 1))}
    some = texts(6, seed=2)
    how = {"n": 2, "max_new_tokens": 6, "progress": False, "steering": steering}
    found = lm.generate(model, tokenizer, some, batch_size=12, **how)
    assert found == lm.generate(model, tokenizer, some, batch_size=1, **how)
    plain = lm.generate(model, tokenizer, some, **{**how, "steering": None})
    hard = {site: rs.SteeringFunction({None: random_map()})}
    assert found != plain
    assert found != lm.generate(model, tokenizer, some, **{**how, "steering": hard})
    ids = torch.tensor([tokenizer(some[0])["input_ids"]])
    with lm.steer(model, steering):
        cached, uncached = (
            model.generate(
                ids, max_new_tokens=6, do_sample=False, use_cache=use, output_logits=True, return_dict_in_generate=True
            )
            for use in (True, False)
        )
    for a, b in zip(cached.logits, uncached.logits, strict=True):
        assert_close(a, b, rtol=DEPTH)


def test_a_strength_of_one_steers_a_model_as_the_gate_always_does(model):
    ids, mask = prompts()
    one = SoftGate((0, 1), np.ones((1, D)), np.zeros(1), np.zeros(1), np.ones(1))
    with lm.steer(model, {"final": rs.SteeringFunction({1: random_map()}, one, (0, 1))}):
        soft = run(model, ids, mask)
    with lm.steer(model, {"final": random_map()}):
        always = run(model, ids, mask)
    assert torch.equal(soft, always)


def test_gradients_pass_through_a_soft_gate():
    gate = SoftGate((0, 1), np.ones((1, D)), np.zeros(1), np.array([-20.0, 20.0]), np.array([0.0, 1.0]))
    rows = RowSteering(rs.SteeringFunction({1: random_map()}, gate, (0, 1)), name="test")
    H = torch.from_numpy(X[:2].astype(float)).requires_grad_()
    assert torch.autograd.gradcheck(rows, H)


def test_only_steered_rows_can_overflow():
    gate = SoftGate((0, 1), np.ones((1, D)), np.zeros(1), np.zeros(2), np.array([0.0, 1.0]))
    rows = RowSteering(rs.SteeringFunction({1: rs.Diagonal(np.full(D, 1e30), np.zeros(D))}, gate, (0, 1)), name="test")
    low = torch.full((2, D), -1e20)
    assert torch.equal(rows(low), low)
    with pytest.raises(NonFiniteError, match="Lower the strength"):
        rows(-low)


@pytest.mark.parametrize(("dtype", "size"), [(torch.float16, 1e4), (torch.float32, 1e38)])
def test_a_strength_above_one_that_overflows_is_refused(dtype, size):
    gate = SoftGate((0, 1), np.ones((1, D)), np.zeros(1), np.zeros(2), np.array([0.0, 4.0]))
    rows = RowSteering(rs.SteeringFunction({1: rs.Diagonal(np.full(D, 3.0), np.zeros(D))}, gate, (0, 1)), name="test")
    states = torch.full((2, D), size, dtype=dtype)
    assert torch.isfinite(3 * states).all()
    with pytest.raises(NonFiniteError, match="Lower the strength"):
        rows(states)
    assert torch.equal(rows(-states), -states)
    assert torch.isfinite(rows(states / 10)).all()


@pytest.mark.parametrize("label", [1, None])
def test_weights_cannot_hold_a_soft_gate(model, tmp_path, label):
    gate = SoftGate((0, 1), np.ones((1, D)), np.zeros(1), np.zeros(1), np.full(1, 0.5))
    steering = rs.SteeringFunction({label: rs.Translation(np.ones(D))}, gate, (0, 1))
    with pytest.raises(FoldError, match=r"soft gate.*lm\.steer"):
        lm.fold(model, steering, "final")
    with pytest.raises(FoldError, match=r"soft gate.*lm\.steer"):
        lm.to_lora(model, steering, "layers.0.mlp", tmp_path / "lora")
    with pytest.raises(FoldError, match=r"soft gate.*lm\.steer"):
        lm.to_gguf(model, steering, "layers.1", tmp_path / "vector.gguf")
    assert not list(tmp_path.iterdir())
