"""Whatever a header holds, loading raises `FileFormatError` or gives a value that can be described and saved again."""

import copy
import json
import os
import struct
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import repsurgery as rs
from repsurgery.errors import DataError, FileFormatError, LabelError, NotNumericError, ParameterError, ShapeError
from repsurgery.files import Contents, from_bytes, read_file, to_bytes, write_file
from repsurgery.gates import LinearGate, MLPGate, QuadraticGate
from repsurgery.gates.rules import AlwaysGate
from repsurgery.scale.reduce.parts import part_name, read_part, read_receipt, write_part
from repsurgery.scale.shards.counting import Counted, NonFinite
from repsurgery.scale.shards.shard import Extent
from repsurgery.studies.common.report.describe import describe
from tests.certificates.test_outcome import outcome
from tests.strategies import make_concept

X, Z = make_concept(0, d=3, rows=(12, 15))
WORDS = np.where(Z, "polite", "rude")
IDENTITY = "0" * 64


@dataclass(frozen=True)
class Case:
    """A value as a file, and how it is read back."""

    data: bytes = field(repr=False)
    read: object = rs.load


def saved(value, folder):
    rs.save(value, folder / "f")
    return Case((folder / "f").read_bytes())


def part(folder):
    counted = Counted(rs.ClassMoments.of(X, Z), len(X), NonFinite(2, (3, 4)))
    write_part(folder, counted, shard="s", identity=IDENTITY, extent=Extent("here", 0, 29))
    return (folder / part_name(IDENTITY)).read_bytes()


def read_as_part(path):
    return read_part(path)[0]


def read_as_receipt(path):
    json.dumps(read_receipt(path, IDENTITY).counts)
    return ()


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    est = rs.MiMiC(gate="qda").fit(X, WORDS)
    few = rs.ClassMoments.of(X[:4], Z[:4])
    return {
        "identity": saved(rs.Identity(3), folder),
        "dense": saved(est.map_, folder),
        "low-rank": saved(rs.LEACE().fit(X, Z).map_, folder),
        "gate": saved(est.gate_, folder),
        "steering": saved(est.steering_, folder),
        "measured": saved(est.steering_.with_outcome(outcome()), folder),
        "gated": saved(rs.MeanMatching().fit(X, Z).steering_, folder),
        "estimator": saved(rs.MidSteer(source=0, target=1).fit(X, Z), folder),
        "erasure": saved(rs.BarycenterErasure().fit(X, WORDS), folder),
        "moments": saved(rs.ClassMoments.of(X, Z), folder),
        "grouped": saved(rs.ClassMoments.of(X, Z, groups=np.arange(len(X)) // 3), folder),
        "few": saved(few, folder),
        "single": saved(rs.Moments.of(X), folder),
        "part": Case(part(folder), read_as_part),
        "receipt": Case(part(folder), read_as_receipt),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("forged")


NAMES = (
    *("identity", "dense", "low-rank", "gate", "steering", "measured", "gated", "estimator", "erasure"),
    *("moments", "grouped", "few", "single", "part", "receipt"),
)

ODD = st.sampled_from(
    [
        *(None, True, False, 0, 1, -1, 2**63, 2**200, 0.5, -1.0, 1e308, float("nan"), float("inf")),
        *("", "1", "a", "\x00", "rude", "\ud800", "dense", "linear"),
        *([], {}, [1], ["a", "a"], [[]], {"a": 1}, {"kind": "dense"}, [None, None]),
        json.loads("[" * 400 + "]" * 400),
    ]
)


def places(value, at=()):
    """Every place in a JSON value, the whole of it first."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*at, key))


def forged(draw, value):
    """Replace, drop or double something in a JSON value."""
    found = draw(st.sampled_from(list(places(value))[1:]))
    *way, last = found
    owner = value
    for key in way:
        owner = owner[key]
    what = draw(st.sampled_from(["replace", "drop", "swap", "double"]))
    if what == "drop":
        del owner[last]
    elif what == "double" and isinstance(owner, list):
        owner.append(owner[last])
    elif what == "swap":
        other = draw(st.sampled_from(list(places(value))))
        found = value
        for key in other:
            found = found[key]
        owner[last] = json.loads(json.dumps(found))
    else:
        owner[last] = copy.deepcopy(draw(ODD))
    return value


def assert_refused_or_whole(case, data, folder):
    path = folder / "forged"
    path.write_bytes(data)
    try:
        value = case.read(path)
    except FileFormatError:
        return
    if isinstance(value, rs.Moments):
        value = rs.ClassMoments({0: value})
    if isinstance(value, tuple):
        return
    json.dumps(describe(value))
    rs.save(value, folder / "again")
    assert describe(rs.load(folder / "again")) == describe(value) or "NaN" in json.dumps(describe(value))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=150)
@given(data=st.data())
def test_a_forged_header_is_refused_or_loads(name, cases, folder, data):
    contents = from_bytes(cases[name].data)
    header = json.loads(json.dumps(dict(contents.header)))
    for _ in range(data.draw(st.integers(1, 2))):
        if header:
            header = forged(data.draw, header)
    assert_refused_or_whole(cases[name], to_bytes(Contents(contents.kind, header, contents.arrays)), folder)


CHANGES = {
    "dropped": lambda array: None,
    "flat": lambda array: array.reshape(-1),
    "deep": lambda array: array[None],
    "shorter": lambda array: array.reshape(-1)[:-1],
    "narrow": lambda array: array[..., :-1] if array.ndim else array,
    "negative": lambda array: -array,
    "whole": lambda array: np.zeros(array.shape, dtype=np.int64),
    "half": lambda array: array.astype(np.float32),
    "scalar": lambda array: np.array(2.0),
    "empty": lambda array: np.zeros((0, 3)),
    "wide": lambda array: np.zeros((0, 2**40)),
    "yes": lambda array: np.ones(array.shape, dtype=bool),
}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(data=st.data())
def test_forged_arrays_are_refused_or_load(name, cases, folder, data):
    contents = from_bytes(cases[name].data)
    arrays = dict(contents.arrays)
    change = data.draw(st.sampled_from(sorted(CHANGES)))
    chosen = data.draw(st.sampled_from(sorted(arrays)))
    arrays[chosen] = CHANGES[change](arrays[chosen])
    if arrays[chosen] is None:
        del arrays[chosen]
    assert_refused_or_whole(cases[name], to_bytes(Contents(contents.kind, contents.header, arrays)), folder)


def with_head(data, change):
    """Change the outermost JSON, which safetensors itself reads."""
    (size,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + size])
    text = json.dumps(change(head)).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


@settings(max_examples=150)
@given(data=st.data())
def test_a_forged_safetensors_header_is_refused_or_loads(cases, folder, data):
    name = data.draw(st.sampled_from(["dense", "moments"]))
    changed = with_head(cases[name].data, lambda head: forged(data.draw, head))
    assert_refused_or_whole(cases[name], changed, folder)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"null", b"\xff\xfe{}", b"[" * 10**6, b'{"__metadata__": 1}', b'{"__metadata__": {"a": 1}}']
    + [b'{"__metadata__": {"repsurgery": "%s"}}' % inner for inner in (b"", b"1", b"[]", b"[" * 10**6, b"{}")]
    + [b'{"__metadata__": {"repsurgery": 1}}', b'{"__metadata__": {"repsurgery": "{\\"version\\": true}"}}'],
    ids=range(15),
)
def test_any_bytes_for_a_header_are_refused(tmp_path, text):
    (tmp_path / "f").write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(FileFormatError):
        rs.load(tmp_path / "f")


def huge(path, head, size):
    """Write a header, and claim ``size`` bytes of tensors that take no room on the disk."""
    text = json.dumps(head).encode()
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(8 + len(text) + size)


def test_a_foreign_file_is_refused_by_its_header(tmp_path):
    # reading 2**43 bytes would neither end nor fit: that this returns is the proof
    size = 2**43
    weights = {"lm_head.weight": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}}
    huge(tmp_path / "model.safetensors", {"__metadata__": {"format": "pt"}, **weights}, size)
    with pytest.raises(FileFormatError, match="not written by repsurgery"):
        rs.load(tmp_path / "model.safetensors")
    ours = {"version": 1, "kind": "extracted-rows", "header": {}}
    huge(tmp_path / "rows", {"__metadata__": {"repsurgery": json.dumps(ours), "digest": ""}, **weights}, size)
    with pytest.raises(FileFormatError, match=r"contains data of kind .extracted-rows., not"):
        rs.load(tmp_path / "rows")
    with pytest.raises(FileFormatError, match="number format"):
        read_file(tmp_path / "rows")


def test_what_is_no_file_of_ours_is_one_error(tmp_path):
    (tmp_path / "text").write_text("Dear reader, this is a text and no file of numbers." * 9)
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")  # opened, it would wait for a writer for ever
    save_file({"a": np.zeros(2)}, tmp_path / "foreign")
    for name in ("text", "empty", "folder", "fifo", "foreign"):
        with pytest.raises(FileFormatError):
            rs.load(tmp_path / name)
        with pytest.raises(FileFormatError):
            rs.ClassMoments.load(tmp_path / name)


def moments(**changes):
    d = 2
    usual = {"count": 3, "weight": 3.0, "mean": np.zeros(d), "dense": np.eye(d), "factor": None}
    return rs.Moments(**{**usual, **changes})


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"weight": np.inf}, DataError),
        ({"weight": np.nan}, DataError),
        ({"weight": -3.0}, DataError),
        ({"weight": 0.0}, DataError),
        ({"count": -1}, DataError),
        ({"count": 1.5}, DataError),
        ({"dense": -np.eye(2)}, DataError),
        ({"dense": np.diag([1.0, np.nan])}, DataError),
        ({"mean": np.array([0.0, np.inf])}, DataError),
        ({"dense": np.eye(3)}, ShapeError),
        ({"factor": np.eye(2)}, ShapeError),
        ({"dense": None}, ShapeError),
        ({"mean": np.zeros((1, 2))}, ShapeError),
        ({"mean": np.array(["a", "b"])}, NotNumericError),
        ({"dtype": "float8"}, ParameterError),
        ({"precision": "low"}, ParameterError),
    ],
)
def test_moments_of_no_rows_are_refused(changes, error):
    moments()
    with pytest.raises(error):
        moments(**changes)


def test_a_scatter_in_a_file_is_one(tmp_path):
    for dense in (np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([[1.0, 0.5], [-0.5, 1.0]])):
        moments(dense=dense).save(tmp_path / "m")
        with pytest.raises(FileFormatError, match="not symmetric, or some covariance exceeds"):
            rs.Moments.load(tmp_path / "m")


def test_labels_that_are_equal_or_of_several_kinds_are_refused(tmp_path):
    rs.ClassMoments.of(X, Z).save(tmp_path / "m")
    held = read_file(tmp_path / "m")
    for label in (0, 0.0, False, "1", None, 0.5, [1]):
        classes = [{**held.header["classes"][0]}, {**held.header["classes"][1], "label": label}]
        write_file(tmp_path / "m", Contents(held.kind, {"classes": classes}, held.arrays))
        with pytest.raises(FileFormatError):
            rs.ClassMoments.load(tmp_path / "m")
    one = rs.Moments.of(X)
    for labels in ([0, "a"], [False, 2], [None], [float("nan")]):
        with pytest.raises(LabelError):
            rs.ClassMoments(dict.fromkeys(labels, one))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: rs.Identity(0), ShapeError),
        (lambda: AlwaysGate((1, 1)), LabelError),
        (lambda: LinearGate(("a", "b", "c"), np.zeros((2, 3)), np.zeros(2)), ShapeError),
        (lambda: LinearGate(("a", "a"), np.zeros((1, 3)), np.zeros(1)), LabelError),
        (lambda: QuadraticGate(("a", "b"), np.zeros(2), np.zeros((2, 1, 1)), np.zeros(2)), ShapeError),
        (lambda: MLPGate(("a", "b"), np.zeros((3, 4)), np.zeros(5), np.zeros((4, 1)), np.zeros(1)), ShapeError),
        (
            lambda: rs.SteeringFunction(
                {"a": rs.Identity(2), "b": rs.Identity(3)}, LinearGate(("a", "b"), np.zeros((1, 2)), np.zeros(1))
            ),
            ShapeError,
        ),
        (
            lambda: rs.SteeringFunction({"a": rs.Identity(2)}, LinearGate(("a", "b"), np.zeros((1, 3)), np.zeros(1))),
            ShapeError,
        ),
        (lambda: rs.SteeringFunction({"c": rs.Identity(2)}, AlwaysGate(), ("a", "b")), LabelError),
        (
            lambda: rs.SteeringFunction(
                {None: rs.Identity(2), "a": rs.Identity(2)}, LinearGate(("a", "b"), np.zeros((1, 2)), np.zeros(1))
            ),
            ParameterError,
        ),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(make, error):
    with pytest.raises(error):
        make()
