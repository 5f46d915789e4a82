"""Weights: what gates say to steering functions, hard and soft alike, and the same maps behind another gate."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier

import repsurgery as rs
from repsurgery.errors import LabelError, ParameterError, ShapeError, SurgeryError
from repsurgery.gates import AlwaysGate, ClassifierGate, Gate, LabelsGate, LinearGate, MLPGate, QuadraticGate, SoftGate
from repsurgery.price import Fisher, Price
from tests.guide import nearness_of_the_guide
from tests.lm.tools import random_map

D = 16
rng = np.random.default_rng(0)
X = rng.normal(size=(200, D))
LINEAR = LinearGate((0, 1), rng.normal(size=(1, D)), np.array([0.3]))
SOFT = SoftGate((0, 1), LINEAR.coef, LINEAR.intercept, np.array([-1.0, 1.0]), np.array([0.0, 1.0]))
HARD = {
    "linear": LINEAR,
    "three classes": LinearGate((0, 1, 2), rng.normal(size=(3, D)), rng.normal(size=3)),
    "quadratic": QuadraticGate((0, 1), 0.1 * rng.normal(size=(2, D)), rng.normal(size=(2, D, D)) / D, np.zeros(2)),
    "mlp": MLPGate((0, 1), rng.normal(size=(D, 8)), rng.normal(size=8), rng.normal(size=(8, 1)), rng.normal(size=1)),
}
MAPS = {0: random_map(seed=1), 1: random_map(seed=2)}


@dataclass(frozen=True)
class FirstColumns(Gate):
    """Weigh each class by one of the first features of a row."""

    classes: tuple
    kind = "first-columns"

    def weights(self, X):
        return X[:, : len(self.classes)]


@dataclass(frozen=True, eq=False, slots=True)
class Older(Gate):
    """A gate from before there were weights, one of whose arrays has that name."""

    classes: tuple
    weights: np.ndarray
    kind = "older"

    def codes(self, X):
        return (X @ self.weights >= 0).astype(int)


@dataclass(frozen=True)
class Everyone(Gate):
    """Steer every row, as the gate always does, by another name."""

    classes: tuple = ()
    kind = "everyone"
    reads = "nothing"

    def codes(self, X):
        return np.zeros(len(X), dtype=int)


def near(labels=(0, 1)):
    return nearness_of_the_guide()[0](labels, rng.normal(size=(len(labels), D)))


@pytest.mark.parametrize("kind", HARD)
def test_the_weights_of_a_hard_gate_are_one_hot(kind):
    gate = HARD[kind]
    assert gate.hard
    assert np.array_equal(gate.weights(X), np.eye(len(gate.classes))[gate.codes(X)])
    assert len(set(gate.codes(X).tolist())) == len(gate.classes)
    assert not np.isin(SOFT.weights(X), (0, 1)).all()


def test_weights_are_as_many_as_the_classes_or_one():
    assert np.array_equal(AlwaysGate((0, 1)).weights(X), np.ones((200, 1)))
    assert np.array_equal(SOFT.weights(X), SOFT.strength(X)[:, None])
    assert near((0, 1, 2)).weights(X).shape == (200, 3)
    classifier = ClassifierGate((0, 1), DummyClassifier(strategy="constant", constant=1).fit(X, np.arange(200) % 2))
    assert np.array_equal(classifier.weights(X), np.tile([0.0, 1.0], (200, 1)))
    with pytest.raises(LabelError, match="passed no labels"):
        LabelsGate((0, 1)).weights(X)


def test_a_gate_that_defines_weights_predicts_the_greatest():
    gate = near((0, 1, 2))
    assert not gate.hard
    assert np.array_equal(gate.codes(X), np.square(X[:, None] - gate.means).sum(axis=2).argmin(axis=1))
    assert len(set(gate.predict(X).tolist())) == 3


@pytest.mark.parametrize("gate", [LINEAR, SOFT, near(), near((0, 1, 2)), AlwaysGate((0, 1))], ids=lambda g: g.kind)
@pytest.mark.parametrize("maps", [{1: MAPS[1]}, MAPS, {None: MAPS[0]}], ids=["one", "two", "every class"])
def test_a_call_is_the_sum_of_the_weighted_maps(gate, maps):
    if len(maps) > 1 and gate.weights(X).shape[1] == 1:
        with pytest.raises(ParameterError, match="Name one source"):
            rs.SteeringFunction(maps, gate, (0, 1))
        return
    function = rs.SteeringFunction(maps, gate)
    W = function.weights(X)
    moves = [w[:, None] * (m(X) - X) for w, m in zip(W.T, maps.values(), strict=True)]
    np.testing.assert_allclose(function(X), X + sum(moves), atol=1e-12)
    assert W.shape == (200, len(maps))
    # the counter-check: other weights give other rows
    changed = W + 0.1
    moves = [w[:, None] * (m(X) - X) for w, m in zip(changed.T, maps.values(), strict=True)]
    assert not np.allclose(function(X), X + sum(moves))


def test_a_map_for_every_class_takes_all_weights():
    m, gate = MAPS[0], FirstColumns((0, 1))
    rows = np.abs(X)
    assert np.array_equal(rs.SteeringFunction({None: m}, gate).weights(rows)[:, 0], rows[:, 0] + rows[:, 1])
    assert np.array_equal(rs.SteeringFunction({1: m}, gate).weights(rows)[:, 0], rows[:, 1])
    assert np.array_equal(rs.SteeringFunction({7: m}, gate)(rows), rows)
    assert np.array_equal(rs.SteeringFunction({None: m}, LINEAR)(X), m(X))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_weights_of_0_and_1_leave_no_rounding_behind(dtype):
    rows = rng.normal(size=(5, D)).astype(dtype)
    rows[:, :2] = [[0, 0], [1, 0], [0, 1], [1, 1], [0.5, 0]]
    maps = {0: rs.Translation(rng.normal(size=D)), 1: rs.Diagonal(rng.normal(size=D), rng.normal(size=D))}
    found = rs.SteeringFunction(maps, FirstColumns((0, 1)))(rows)
    assert np.array_equal(found[0], rows[0])
    assert np.array_equal(found[1], maps[0](rows)[1])
    assert np.array_equal(found[2], maps[1](rows)[2])
    h = rows.astype(float)
    np.testing.assert_allclose(found[3], (maps[0](h) + maps[1](h) - h)[3], rtol=100 * np.finfo(dtype).eps)
    assert not np.array_equal(found[4], rows[4])
    # the counter-check: the formula itself rounds
    assert not np.array_equal(h + (maps[1](h) - h), maps[1](h))


def test_a_gate_from_before_there_were_weights_decides_as_before():
    gate = Older((0, 1), LINEAR.coef[0])
    assert gate.hard
    cut = LinearGate((0, 1), LINEAR.coef, np.zeros(1))
    assert np.array_equal(rs.SteeringFunction(MAPS, gate, (0, 1))(X), rs.SteeringFunction(MAPS, cut, (0, 1))(X))
    assert not np.array_equal(rs.SteeringFunction(MAPS, gate, (0, 1))(X), rs.SteeringFunction(MAPS, LINEAR, (0, 1))(X))


def test_a_gate_that_reads_nothing_is_the_gate_always():
    function, always = (rs.SteeringFunction({1: MAPS[1]}, gate()) for gate in (Everyone, AlwaysGate))
    assert np.array_equal(function(X), always(X))
    assert np.array_equal(function.gate.weights(X), np.ones((200, 1)))
    np.testing.assert_allclose(function.inverse(function(X)), X, atol=1e-9)
    assert np.array_equal(function.after(function)(X), always.after(always)(X))
    with pytest.raises(ParameterError, match="by one map, but there are 2"):
        rs.SteeringFunction(MAPS, Everyone())
    with pytest.raises(SurgeryError, match="do not show which"):
        function.behind(LINEAR).inverse(X)


def test_labels_decide_in_place_of_weights():
    z = np.arange(200) % 2
    function = rs.SteeringFunction(MAPS, near(), (0, 1))
    assert np.array_equal(function(X, z), rs.SteeringFunction(MAPS, LINEAR, (0, 1))(X, z))
    assert np.array_equal(function.weights(X, z), np.eye(2)[z])
    assert not np.array_equal(function(X, z), function(X))


def test_a_gate_that_breaks_its_protocol_is_refused():
    with pytest.raises(ParameterError, match="neither codes"):
        type("Nothing", (Gate,), {"kind": "nothing"})
    function = rs.SteeringFunction(MAPS, FirstColumns((0, 1)))
    with pytest.raises(ParameterError, match="negative, infinite or NaN"):
        function(-np.abs(X))
    with pytest.raises(ShapeError, match=r"shape \(4, 2\) for 4 rows.*one weight per class, \(4, 3\)"):
        rs.SteeringFunction({0: rs.Identity(2)}, FirstColumns((0, 1, 2)))(np.ones((4, 2)))
    # a single column is a weight for one map, whatever the classes
    half = np.full((4, 1), 0.5)
    assert np.array_equal(rs.SteeringFunction({0: rs.Translation([1.0])}, FirstColumns((0, 1, 2)))(half), half + 0.5)


def test_a_new_kind_of_soft_gate_is_saved_bit_for_bit(tmp_path):
    function = rs.SteeringFunction(MAPS, near(), (0, 1))
    rs.save(function, tmp_path / "near.safetensors")
    again = rs.load(tmp_path / "near.safetensors")
    assert again.digest() == function.digest() != rs.SteeringFunction(MAPS, near(), (0, 1)).digest()
    assert np.array_equal(again(X), function(X))
    rs.save(function.gate, tmp_path / "gate.safetensors")
    assert np.array_equal(rs.load(tmp_path / "gate.safetensors").weights(X), function.gate.weights(X))
    assert "as strongly as its weights say" in repr(function.gate)
    assert "nearness between 0, 1" in repr(function)


def test_an_estimator_takes_a_new_kind_of_soft_gate_and_is_certified(tmp_path):
    z = LINEAR.codes(X)
    gate = nearness_of_the_guide()[1](rs.ClassMoments.of(X, z))
    est = rs.MeanMatching(source=1, target=0, gate=gate).fit(X, z)
    np.testing.assert_allclose(est.transform(X) - X, gate.weights(X)[:, 1:] * est.map_.shift, atol=1e-13)
    certificate = est.certify(X, z)
    assert certificate.youden is None
    assert 0 < certificate.gated_mean_gap < certificate.by_source[1].mean_gap_before
    rs.save(est, tmp_path / "est.safetensors")
    assert np.array_equal(rs.load(tmp_path / "est.safetensors").transform(X), est.transform(X))
    with pytest.raises(SurgeryError, match="do not show how strongly"):
        est.inverse_transform(X, concept=z)
    with pytest.raises(ParameterError, match="do not compose"):
        est.steering_.after(est.steering_)


def test_the_price_of_a_new_kind_of_soft_gate_is_that_of_its_rows():
    function, fisher = rs.SteeringFunction(MAPS, near(), (0, 1)), Fisher(1, np.eye(D))
    assert fisher.kl_on(function, X) == pytest.approx(0.5 * np.square(function(X) - X).sum(axis=1).mean())
    with pytest.raises(ParameterError, match="kl_on"):
        fisher.kl(function, rs.ClassMoments.of(X, LINEAR.codes(X)), share={0: 0.5, 1: 0.5})


@pytest.mark.parametrize("gate", [LINEAR, SOFT, near(), AlwaysGate()], ids=lambda g: g.kind)
def test_behind_a_gate_is_the_function_with_that_gate(gate):
    always = rs.SteeringFunction({1: MAPS[1]}, AlwaysGate(), (0, 1))
    by_hand = rs.SteeringFunction({1: MAPS[1]}, gate, (0, 1))
    assert always.behind(gate).digest() == always.behind(gate, source=1).digest() == by_hand.digest()
    of_every_class = rs.SteeringFunction({None: MAPS[1]})
    assert of_every_class.behind(gate, source=1)(X).tolist() == by_hand(X).tolist()
    # a single weight belongs to the map, whatever its class; of several, each class has its own
    other = always.behind(gate, source=0)
    assert np.array_equal(other(X), by_hand(X)) == (gate.weights(X).shape[1] == 1)


def test_behind_two_gates_is_behind_the_last():
    function, gate = rs.SteeringFunction(MAPS, LINEAR, (0, 1)), near()
    assert function.behind(gate).behind(LINEAR).digest() == function.digest()
    assert function.behind(gate).digest() != function.digest()
    erasure = rs.SteeringFunction({None: MAPS[0]})
    for last in (LINEAR, SOFT, gate):
        first = erasure.behind(LINEAR, source=1)
        assert first.behind(last).digest() == erasure.behind(last, source=1).digest()
    assert np.array_equal(erasure.behind(LINEAR, source=1).behind(AlwaysGate())(X), erasure(X))


def test_behind_a_gate_keeps_the_origin_alone():
    z = LINEAR.codes(X)
    est = rs.MeanMatching(source=1, target=0).fit(X, z)
    own = est.steering_.with_origin(model="m", site="layers.1", strength=0.5).with_price(Price(Fisher(1, np.eye(D))))
    found = own.behind(LINEAR)
    assert found.origin == own.origin
    assert (found.certificate, found.price, found.outcome) == (None, None, None)
    assert own.certificate is not None and own.price is not None
    with pytest.raises(SurgeryError, match="carries no certificate"):
        found.verify()
    # behind its own gate nothing changes, and nothing is dropped
    assert own.behind(own.gate) is own


def test_a_map_for_every_class_needs_a_source_behind_a_gate_of_classes():
    erasure = rs.LEACE().fit(X, LINEAR.codes(X)).steering_
    for gate in (LINEAR, near(), LabelsGate((0, 1))):
        with pytest.raises(ParameterError, match=r"source=, one of \[0, 1\]"):
            erasure.behind(gate)
    behind = erasure.behind(LINEAR, source=1)
    assert np.array_equal(behind(X)[LINEAR.codes(X) == 0], X[LINEAR.codes(X) == 0])
    # the counter-check: written by hand under None, the map takes no notice of the gate
    assert np.array_equal(rs.SteeringFunction(erasure.maps, LINEAR, (0, 1))(X), erasure(X))
    # a gate with a single weight needs no source
    assert np.array_equal(erasure.behind(SOFT)(X), erasure.behind(SOFT, source=1)(X))


def test_a_source_renames_the_class_of_one_map():
    function = rs.SteeringFunction({"toxic": MAPS[0]}, AlwaysGate(), ("clean", "toxic"))
    with pytest.raises(LabelError, match=r"classes \[0, 1\]; the maps steer \['toxic'\]"):
        function.behind(LINEAR)
    found = function.behind(LINEAR, source=1)
    assert (found.classes, list(found.maps)) == ((0, 1), [1])
    assert np.array_equal(found(X), rs.SteeringFunction({1: MAPS[0]}, LINEAR, (0, 1))(X))


def test_what_cannot_stand_behind_a_gate_is_refused():
    two = rs.SteeringFunction(MAPS, LINEAR, (0, 1))
    with pytest.raises(ParameterError, match="Leave source out"):
        two.behind(near(), source=0)
    with pytest.raises(ParameterError, match="one strength for one map"):
        two.behind(SOFT)
    with pytest.raises(ParameterError, match="by one map, but there are 2"):
        two.behind(AlwaysGate())
    with pytest.raises(LabelError, match="the maps steer"):
        two.behind(LinearGate((1, 2), LINEAR.coef, LINEAR.intercept))
    with pytest.raises(ParameterError, match="behind got a str; it takes a fitted gate"):
        two.behind("lda")
    with pytest.raises(ShapeError, match="different numbers of features"):
        two.behind(LinearGate((0, 1), np.ones((1, 3)), np.zeros(1)))
