import copy
import hashlib
import json
import pickle

import numpy as np
import pytest
from safetensors.numpy import save_file

import repsurgery as rs
from repsurgery.errors import FileFormatError, ParameterError
from repsurgery.files import Contents, read_file, write_file
from tests.strategies import make_concept

FACTS = {
    "model": "smollm2-135m",
    "configuration": "c0ffee",
    "fingerprint": "0ddba11",
    "dtype": "bfloat16",
    "site": "layers.15",
    "pooling": "mean",
    "positions": "generated",
    "strength": 0.5,
    "data": "da7a",
    "licence": "Apache-2.0; texts CC BY 4.0",
}


@pytest.fixture
def est():
    return rs.MiMiC(source=0, target=1).fit(*make_concept(0))


@pytest.mark.parametrize("kind", ["estimator", "function"])
def test_the_origin_travels_and_leaves_digest_and_certificate_alone(tmp_path, est, kind):
    plain = est if kind == "estimator" else est.steering_
    value = plain.with_origin(**FACTS)
    assert plain.origin == rs.Origin()
    rs.save(value, tmp_path / "s")
    back = rs.load(tmp_path / "s")
    assert back.origin.to_dict() == FACTS
    function = back.steering_ if kind == "estimator" else back
    assert function.origin == back.origin
    assert function.digest() == est.steering_.digest()
    assert function.certificate == est.certificate_
    rs.verify(function)
    assert (function(make_concept(1)[0]) == est.transform(make_concept(1)[0])).all()


def old_file(path):
    """Write a file as the first version of this package did, by hand."""
    arrays = {"map.0.shift": np.array([1.0, -2.0])}
    held = {
        "maps": [{"label": None, "kind": "translation"}],
        "gate": {"kind": "always", "classes": []},
        "classes": [],
        "certificate": None,
    }
    text = json.dumps({"version": 1, "kind": "steering-function", "header": held}, sort_keys=True)
    sha = hashlib.sha256(text.encode())
    for name, array in arrays.items():
        sha.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        sha.update(array.tobytes())
    save_file(arrays, path, metadata={"repsurgery": text, "digest": sha.hexdigest()})


def test_a_file_from_before_loads_with_nothing_known(tmp_path):
    old_file(tmp_path / "old")
    back = rs.load(tmp_path / "old")
    assert back.origin == rs.Origin()
    assert set(back.origin.to_dict().values()) == {None}
    assert back(np.zeros((1, 2))).tolist() == [[1.0, -2.0]]


def test_without_an_origin_a_file_is_what_it_always_was(tmp_path, est):
    old_file(tmp_path / "old")
    rs.save(rs.load(tmp_path / "old"), tmp_path / "new")
    assert read_file(tmp_path / "new").header == read_file(tmp_path / "old").header
    rs.save(est, tmp_path / "e")
    assert "origin" not in read_file(tmp_path / "e").header["steering"]


@pytest.mark.parametrize(
    "forged",
    [
        "layers.15",
        ["layers.15"],
        3,
        {"site": 15},
        {"site": ""},
        {"site": ["layers.15"]},
        {"model": {"name": "gpt2"}},
        {"strength": "1"},
        {"strength": True},
        {"strength": 10**400},
        {"positions": "everywhere"},
        {"positions": 1},
        {"colour": "red"},
    ],
    ids=repr,
)
def test_a_forged_origin_is_one_typed_error(tmp_path, est, forged):
    rs.save(est.steering_, tmp_path / "s")
    held = read_file(tmp_path / "s")
    write_file(tmp_path / "s", Contents(held.kind, {**held.header, "origin": forged}, held.arrays))
    with pytest.raises(FileFormatError, match="origin"):
        rs.load(tmp_path / "s")
    rs.save(est, tmp_path / "e")
    held = read_file(tmp_path / "e")
    header = {**held.header, "steering": {**held.header["steering"], "origin": forged}}
    write_file(tmp_path / "e", Contents(held.kind, header, held.arrays))
    with pytest.raises(FileFormatError, match="origin"):
        rs.load(tmp_path / "e")


@pytest.mark.parametrize("strength", [float("nan"), float("inf")])
def test_a_strength_that_is_no_number_is_refused(est, strength):
    with pytest.raises(ParameterError, match="strength"):
        est.with_origin(strength=strength)


def test_wrong_facts_are_refused(est):
    with pytest.raises(ParameterError, match="no colour; it has model"):
        est.with_origin(colour="red")
    with pytest.raises(ParameterError, match="takes an Origin"):
        est.with_origin({"site": "final"})
    with pytest.raises(ParameterError, match="must be an Origin"):
        rs.SteeringFunction({None: rs.Translation([1.0])}, origin="final")


def test_a_new_fit_forgets_the_origin_and_more_rows_the_data(est):
    told = est.with_origin(**FACTS)
    more = copy.deepcopy(told).partial_fit(*make_concept(1))
    assert more.origin == more.steering_.origin == rs.Origin(**{**FACTS, "data": None})
    assert told.fit(*make_concept(1)).origin == rs.Origin() == told.steering_.origin


def test_a_map_taken_to_a_strength_no_longer_asks_for_one(est):
    half = est.steering_.with_origin(**FACTS).interpolate(0.5)
    assert half.origin == rs.Origin(**{**FACTS, "strength": None})


def test_bare_maps_have_an_origin_too_and_it_is_unknown(tmp_path):
    rs.save(rs.Translation([1.0, 2.0]), tmp_path / "m")
    assert rs.load(tmp_path / "m").origin == rs.Origin()


def test_the_origin_survives_a_pickle(est):
    told = est.with_origin(**FACTS)
    for value in (told, told.steering_):
        assert pickle.loads(pickle.dumps(value)).origin.to_dict() == FACTS
