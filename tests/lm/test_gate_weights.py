"""Gates of weights on live models, among them a soft gate over several classes that the guide shows."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.autograd.gradcheck import GradcheckError

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import FoldError, NonFiniteError, ParameterError, ShapeError
from repsurgery.gates import AlwaysGate, Gate, LinearGate
from repsurgery.lm.steer.row_steering import RowSteering
from repsurgery.workflows.apply import apply_to_vectors
from repsurgery.workflows.compare import steered_steps
from repsurgery.workflows.steerings import open_steerings
from tests.guide import nearness_of_the_guide
from tests.lm.tiny_models import texts
from tests.lm.tools import DEPTH, ROUNDING, assert_close, prompts, random_map, states

D = 16
rng = np.random.default_rng(0)
X = rng.normal(size=(40, D)).astype(np.float32)
MAPS = {0: random_map(seed=1), 1: random_map(seed=2)}


@dataclass(frozen=True, eq=False)
class OnHost(Gate):
    """The weights of another gate, without a version for tensors."""

    classes: tuple
    means: np.ndarray
    kind = "on-host"

    def weights(self, X):
        return nearness_of_the_guide()[0](self.classes, self.means).weights(X)


@dataclass(frozen=True)
class Wrong(Gate):
    """Weights of tensors that break the protocol."""

    classes: tuple
    columns: np.ndarray
    kind = "wrong"

    def weights(self, X):
        return np.ones((len(X), len(self.classes)))

    @staticmethod
    def torch_weights(X, columns):
        return columns.expand(len(X), -1)


def near(kind="tensors", classes=(0, 1), d=D):
    means = np.random.default_rng(3).normal(size=(len(classes), d))
    return (OnHost if kind == "host" else nearness_of_the_guide()[0])(classes, means)


@pytest.mark.parametrize("kind", ["tensors", "host"])
@pytest.mark.parametrize("maps", [{1: MAPS[1]}, MAPS, {None: rs.Translation(np.ones(D))}], ids=["one", "two", "every"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 40])
def test_rows_are_steered_by_the_weights_of_the_function(kind, maps, dtype, n):
    function, rows = rs.SteeringFunction(maps, near(kind, (0, 1, 2))), torch.from_numpy(X[:n]).to(dtype)
    found, total = RowSteering(function, name="test").counted(rows)
    assert found.dtype == dtype
    assert_close(found.numpy(), function(rows.numpy()), rtol=ROUNDING)
    assert_close(total, function.weights(X[:n]).sum(), rtol=ROUNDING)
    hard = RowSteering(rs.SteeringFunction(maps, LinearGate((0, 1), np.ones((1, D)), np.zeros(1))), name="test")
    assert not np.allclose(found.numpy(), hard(rows).numpy())


def test_weights_of_0_and_1_leave_no_rounding_behind_in_a_model():
    # at the mean of one of two classes the weights are exactly 1 and 0
    gate = near()
    rows = torch.from_numpy(gate.means)
    maps = {i: rs.Diagonal(rng.normal(size=D) / 100, rng.normal(size=D) / 100) for i in (0, 1)}
    mapped = [RowSteering(rs.SteeringFunction({None: m}), name="test")(rows) for m in maps.values()]
    moved = torch.stack([mapped[0][0], mapped[1][1]])
    assert torch.equal(RowSteering(rs.SteeringFunction(maps, gate), name="test")(rows), moved)
    one = RowSteering(rs.SteeringFunction({0: maps[0]}, gate), name="test")
    assert torch.equal(one(rows), torch.stack([moved[0], rows[1]]))
    # the counter-check: the formula itself rounds
    assert not torch.equal(rows + (moved - rows), moved)


@pytest.mark.parametrize("kind", ["tensors", "host"])
@pytest.mark.parametrize("site", ["final", "layers.0"])
def test_a_soft_gate_from_the_guide_steers_a_model_as_its_rows(model, site, kind):
    ids, mask = prompts()
    kept = mask.bool()
    before = states(model, site, ids, mask)[kept].numpy()
    function = rs.SteeringFunction(MAPS, near(kind), (0, 1))
    with lm.steer(model, {site: function}) as steered:
        after = states(model, site, ids, mask)[kept].numpy()
    assert_close(after, function(before), rtol=DEPTH)
    assert np.abs(after - before).max() > 0.1
    assert steered.steered_share[site] == pytest.approx(function.weights(before).sum(axis=1).mean(), abs=1e-5)


def test_rows_of_a_batch_are_steered_by_their_own_gates(model, tokenizer):
    some = texts(2, seed=2)
    functions = [rs.SteeringFunction(MAPS, near(kind), (0, 1)) for kind in ("tensors", "host")]
    how = {"n": 1, "max_new_tokens": 5, "progress": False}
    alone = [lm.generate(model, tokenizer, some, steering={"final": f}, **how) for f in functions]
    assert [g.text for g in alone[0]] == [g.text for g in alone[1]]
    both = lm.generate(model, tokenizer, some, steering=[lm.Choice({"final": f}) for f in functions], **how)
    assert [g.text for g in both] == [alone[0][0].text, alone[1][1].text]
    assert [g.text for g in lm.generate(model, tokenizer, some, **how)] != [g.text for g in both]


def test_gradients_pass_through_the_weights_of_tensors():
    rows = torch.from_numpy(X[:2].astype(float)).requires_grad_()
    assert torch.autograd.gradcheck(RowSteering(rs.SteeringFunction(MAPS, near()), name="test"), rows)
    # the counter-check: on the host the weights are constants
    on_host = RowSteering(rs.SteeringFunction(MAPS, near("host")), name="test")
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(on_host, rows)


def test_weights_that_break_the_protocol_are_refused():
    def steering(columns):
        return RowSteering(rs.SteeringFunction(MAPS, Wrong((0, 1), np.array(columns))), name="test")

    rows = torch.from_numpy(X)
    assert torch.isfinite(steering([0.5, 2.0])(rows)).all()
    for columns in ([-1.0, 1.0], [np.nan, 1.0], [np.inf, 1.0]):
        with pytest.raises(ParameterError, match="negative, infinite or NaN"):
            steering(columns)(rows)
    with pytest.raises(ShapeError, match="one weight per class"):
        steering([1.0, 1.0, 1.0])(rows)


def test_only_rows_with_a_weight_can_overflow():
    maps = {0: rs.Diagonal(np.full(D, 1e30), np.zeros(D)), 1: rs.Identity(D)}
    rows = torch.full((2, D), 1e20)
    idle = RowSteering(rs.SteeringFunction(maps, Wrong((0, 1), np.array([0.0, 0.5]))), name="test")
    assert torch.equal(idle(rows), rows)
    with pytest.raises(NonFiniteError, match="Lower the strength"):
        RowSteering(rs.SteeringFunction(maps, Wrong((0, 1), np.array([0.5, 0.5]))), name="test")(rows)


def test_hard_gates_are_never_asked_for_weights(monkeypatch):
    def refuse(self, X):
        raise AssertionError("A hard gate decides by codes, which cost less.")

    for kind in (Gate, AlwaysGate):
        monkeypatch.setattr(kind, "weights", refuse)
    for gate in (LinearGate((0, 1), np.ones((1, D)), np.zeros(1)), AlwaysGate((0, 1))):
        function = rs.SteeringFunction({1: MAPS[1]}, gate, (0, 1))
        for n in (1, 40):
            assert_close(
                RowSteering(function, name="test")(torch.from_numpy(X[:n])).numpy(), function(X[:n]), rtol=ROUNDING
            )
    with pytest.raises(AssertionError, match="codes"):
        gate.weights(X)


def test_steps_and_vectors_count_by_their_weights(model, tokenizer, tmp_path):
    function = rs.SteeringFunction(MAPS, near(), (0, 1)).with_origin(site="final")
    rs.save(function, tmp_path / "near.safetensors")
    (opened,) = open_steerings([str(tmp_path / "near.safetensors")])
    written = lm.generate(
        model, tokenizer, texts(2, seed=2), steering=opened.placement, max_new_tokens=4, progress=False
    )
    steps = steered_steps(model, tokenizer, written, opened.placement, progress=False)
    # the weights of this gate over two classes add up to 1
    assert steps.soft and steps.steered == pytest.approx(steps.steps)
    np.save(tmp_path / "X.npy", X)
    done = apply_to_vectors(opened, tmp_path / "X.npy", tmp_path / "Y.npy")
    assert done.steered == pytest.approx(len(X))
    assert np.array_equal(np.load(tmp_path / "Y.npy"), function(X))
    one = rs.SteeringFunction({1: MAPS[1]}, near(), (0, 1)).with_origin(site="final")
    rs.save(one, tmp_path / "one.safetensors")
    (opened,) = open_steerings([str(tmp_path / "one.safetensors")])
    done = apply_to_vectors(opened, tmp_path / "X.npy", tmp_path / "Z.npy")
    assert done.steered == pytest.approx(near().weights(X)[:, 1].sum())


def test_no_weight_of_a_model_holds_weights_of_a_gate(model, tmp_path):
    for maps in ({1: rs.Translation(np.ones(D))}, {None: rs.Translation(np.ones(D))}):
        function = rs.SteeringFunction(maps, near(), (0, 1))
        with pytest.raises(FoldError, match=r"nearness gate.*lm\.steer"):
            lm.fold(model, function, "final")
        with pytest.raises(FoldError, match=r"nearness gate.*lm\.steer"):
            lm.to_gguf(model, function, "layers.1", tmp_path / "vector.gguf")
    lm.fold(model, function.behind(AlwaysGate()), "final")


def test_a_price_from_moments_is_refused_before_the_model_runs(model, tokenizer):
    with pytest.raises(ParameterError, match="kl_on"):
        lm.price(model, tokenizer, ["one"], rs.SteeringFunction(MAPS, near(), (0, 1)), site="final")
