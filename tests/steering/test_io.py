import json
import warnings

import numpy as np
import pytest

import repsurgery as rs
from repsurgery.errors import FileFormatError
from repsurgery.files import Contents, read_file, write_file
from repsurgery.gates import LinearGate
from tests.affine.test_maps import KINDS, make
from tests.certificates.test_outcome import FACTS, PLACE, outcome
from tests.estimators import ALL
from tests.strategies import make_concept


@pytest.mark.parametrize("kind", KINDS)
def test_maps_survive_a_file_bit_for_bit(tmp_path, kind):
    m = make(kind)
    rs.save(m, tmp_path / "m")
    back = rs.load(tmp_path / "m")
    assert type(back) is type(m)
    assert (back.weight == m.weight).all()
    assert (back.bias == m.bias).all()


@pytest.mark.parametrize("gate", ["nearest-mean", "always", "labels", "logistic", "lda", "qda"])
def test_gates_and_steering_functions_survive_a_file(tmp_path, gate):
    X, z = make_concept(0)
    est = rs.MiMiC(gate=gate).fit(X, np.where(z, "polite", "rude"))
    rs.save(est.steering_, tmp_path / "s")
    back = rs.load(tmp_path / "s")
    assert isinstance(back, rs.SteeringFunction)
    assert back.certificate == est.certificate_
    assert list(back.maps) == ["polite"]
    rs.verify(back)
    labels = np.where(z, "polite", "rude") if gate == "labels" else None
    assert (back(X, labels) == est.steering_(X, labels)).all()
    rs.save(est.gate_, tmp_path / "g")
    assert rs.load(tmp_path / "g").kind == est.gate_.kind


def test_the_network_gate_survives_a_file(tmp_path):
    X, z = make_concept(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whether the network converges does not matter here
        est = rs.MiMiC(gate="mlp", random_state=0).fit(X, z)
    rs.save(est, tmp_path / "s")
    assert (rs.load(tmp_path / "s").transform(X) == est.transform(X)).all()


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("d", [5, 60])
def test_estimators_come_back_whole_and_go_on_learning(tmp_path, estimator, d):
    X, z = make_concept(0, d=d, rows=(20, 20))
    shrinkage = {"shrinkage": "oas"} if estimator is rs.BarycenterErasure else {}
    est = estimator(**shrinkage).fit(X, z)
    rs.save(est, tmp_path / "e")
    back = rs.load(tmp_path / "e")
    assert back.get_params() == est.get_params()
    assert back.certificate_ == est.certificate_
    assert (back.transform(X) == est.transform(X)).all()
    back.verify(X, z)
    more = make_concept(1, d=d, rows=(20, 20))
    expected = est.partial_fit(*more).transform(X)
    assert np.allclose(back.partial_fit(*more).transform(X), expected, rtol=1e-12, atol=1e-12)


def test_feature_names_travel(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, z = make_concept(0)
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    rs.save(rs.MiMiC().fit(frame, z), tmp_path / "e")
    assert rs.load(tmp_path / "e").get_feature_names_out().tolist() == list("abcdef")


@pytest.mark.parametrize("labels", [[False, True], [2, 5], ["a", "b"], [0.0, 1.0]])
def test_labels_keep_their_type(tmp_path, labels):
    X, z = make_concept(0)
    rs.save(rs.MeanMatching().fit(X, np.array(labels)[z]), tmp_path / "e")
    back = rs.load(tmp_path / "e")
    assert back.classes_.tolist() == labels
    assert list(back.maps_) == labels[:1]
    assert type(next(iter(back.maps_))) is type(labels[0])


def test_no_pickle_is_ever_written(tmp_path):
    rs.save(rs.MiMiC(gate="lda").fit(*make_concept(0)), tmp_path / "e")
    data = (tmp_path / "e").read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert "__metadata__" in json.loads(data[8 : 8 + size])
    assert b"numpy" not in data
    assert b"sklearn" not in data


def test_files_whose_parts_do_not_fit_are_refused(tmp_path):
    rs.save(make("dense"), tmp_path / "m")
    contents = read_file(tmp_path / "m")
    wrong = {
        "shapes": {**contents.arrays, "offset": np.zeros(3)},
        "missing": {"matrix": contents.arrays["matrix"]},
        "surplus": {**contents.arrays, "extra": np.zeros(3)},
    }
    for arrays in wrong.values():
        write_file(tmp_path / "m", Contents("map", contents.header, arrays))
        with pytest.raises(FileFormatError, match="do not make a map"):
            rs.load(tmp_path / "m")
    write_file(tmp_path / "m", Contents("map", {"kind": "spiral"}, contents.arrays))
    with pytest.raises(FileFormatError, match="spiral"):
        rs.load(tmp_path / "m")
    write_file(tmp_path / "m", Contents("sausage", {}, {}))
    with pytest.raises(FileFormatError, match="upgrade"):
        rs.load(tmp_path / "m")


def test_damaged_moments_inside_an_estimator_are_refused(tmp_path):
    rs.save(rs.MiMiC().fit(*make_concept(0)), tmp_path / "e")
    contents = read_file(tmp_path / "e")
    arrays = {k: v for k, v in contents.arrays.items() if k != "moments/0.mean"}
    write_file(tmp_path / "e", Contents("estimator", contents.header, arrays))
    with pytest.raises(FileFormatError):
        rs.load(tmp_path / "e")
    write_file(tmp_path / "e", Contents("estimator", {"estimator": "os.system"}, {}))
    with pytest.raises(FileFormatError, match="unknown estimator"):
        rs.load(tmp_path / "e")


def test_what_cannot_be_saved_is_named(tmp_path):
    with pytest.raises(FileFormatError, match="Cannot save a dict"):
        rs.save({}, tmp_path / "x")
    est = rs.MiMiC(random_state=np.random.RandomState(0)).fit(*make_concept(0))
    with pytest.raises(FileFormatError, match="random_state"):
        rs.save(est, tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_a_gate_built_by_hand_steers(tmp_path):
    gate = LinearGate(("a", "b"), np.array([[1.0, 0.0]]), np.array([0.0]))
    steering = rs.SteeringFunction({"a": rs.Translation(np.array([10.0, 0.0]))}, gate, ("a", "b"))
    assert steering(np.array([[-1.0, 0.0], [1.0, 0.0]])).tolist() == [[9.0, 0.0], [1.0, 0.0]]
    rs.save(steering, tmp_path / "s")
    assert rs.load(tmp_path / "s")(np.array([[-1.0, 0.0]])).tolist() == [[9.0, 0.0]]


@pytest.mark.parametrize("classes", [2, 3])
def test_the_number_of_iterations_comes_back(tmp_path, classes):
    est = rs.BarycenterErasure().fit(*make_concept(0, rows=(60, 80, 70)[:classes]))
    rs.save(est, tmp_path / "est")
    assert rs.load(tmp_path / "est").n_iter_ == est.n_iter_ > classes - 2


def measured():
    return rs.MeanMatching(source=0, target=1).fit(*make_concept(0)).steering_.with_origin(**PLACE)


def test_an_outcome_survives_a_file_bit_for_bit(tmp_path):
    held = outcome(base=0.1 + 0.2, steered=0.0, effect=-(0.1 + 0.2), high=0.0, kl=1e-300)
    function = measured().with_outcome(held)
    rs.save(function, tmp_path / "s")
    back = rs.load(tmp_path / "s")
    assert back.outcome == held
    assert back.outcome.base.hex() == (0.1 + 0.2).hex()
    assert (back.digest(), back.origin, back.certificate) == (function.digest(), function.origin, function.certificate)
    rs.verify(back)
    rs.save(back, tmp_path / "again")
    assert read_file(tmp_path / "again").header == read_file(tmp_path / "s").header
    rs.save(function.with_outcome(outcome()), tmp_path / "other")
    assert rs.load(tmp_path / "other").outcome != held


def test_without_an_outcome_a_file_is_what_it_always_was(tmp_path):
    rs.save(measured(), tmp_path / "s")
    assert "outcome" not in read_file(tmp_path / "s").header
    assert rs.load(tmp_path / "s").outcome is None
    rs.save(measured().with_outcome(outcome()).with_outcome(None), tmp_path / "none")
    assert read_file(tmp_path / "none").header == read_file(tmp_path / "s").header
    rs.save(measured().with_outcome(outcome()), tmp_path / "m")
    assert read_file(tmp_path / "m").header["outcome"] == FACTS


@pytest.mark.parametrize(
    "forged",
    [
        *("rude", "", [], ["judge"], 3, 0, False, {}),
        {name: value for name, value in FACTS.items() if name != "p"},
        FACTS | {"colour": "red"},
        *(FACTS | {"steered": steered} for steered in (0.2, None, "0.24", True, [0.24], float("nan"), 10**400)),
        *(FACTS | {"prompts": prompts} for prompts in (0, -60, 60.5, "60", None)),
        *(FACTS | change for change in ({"p": 2}, {"kl": -1}, {"low": 0}, {"measure": 1}, {"judge": {"name": "me"}})),
    ],
    ids=lambda forged: repr(forged)[-40:],
)
def test_a_forged_outcome_is_one_typed_error(tmp_path, forged):
    rs.save(measured().with_outcome(outcome()), tmp_path / "s")
    held = read_file(tmp_path / "s")
    write_file(tmp_path / "s", Contents(held.kind, held.header, held.arrays))
    assert rs.load(tmp_path / "s").outcome == outcome()
    write_file(tmp_path / "s", Contents(held.kind, {**held.header, "outcome": forged}, held.arrays))
    with pytest.raises(FileFormatError, match="outcome"):
        rs.load(tmp_path / "s")


def test_a_damaged_outcome_is_refused(tmp_path):
    rs.save(measured().with_outcome(outcome()), tmp_path / "s")
    data = (tmp_path / "s").read_bytes()
    assert data.count(b"0.098") == 1
    (tmp_path / "s").write_bytes(data.replace(b"0.098", b"0.008"))
    with pytest.raises(FileFormatError, match="digest"):
        rs.load(tmp_path / "s")
