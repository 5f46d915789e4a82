"""Small values of every kind that a file can hold, and what is written down of their files.

Steering functions are made of explicit numbers, and no header names a time, a machine or the version of a library: the
bytes of their files depend on the format alone. Moments may differ in the last bit between libraries of linear algebra;
of their files the structure is written down.
"""

import dataclasses
import hashlib
import math
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import repsurgery as rs
from repsurgery.files import read_file
from repsurgery.gates import AlwaysGate, LabelsGate, LinearGate, MLPGate, QuadraticGate, SoftGate
from repsurgery.price import Price

FOLDER = Path(__file__).with_name("files")
"""Files that every later version reads; some are added, and none is written anew."""
FROZEN = ("behind-labels", "behind-linear", "behind-mlp", "behind-quadratic", "behind-soft", "certified")
FROZEN += ("class-moments-grouped", "cross-moments-factor", "estimator", "fisher", "gate-linear", "map-dense")
FROZEN += ("map-per-class", "moments-dense", "under-none-identity", "under-none-low-rank", "with-outcome", "with-price")

DIAGONAL, SHIFT = rs.Diagonal([2.0, 1.0, 0.5], [1.0, 0.0, -1.0]), rs.Translation([1.0, -2.0, 0.25])
DENSE = rs.Dense([[1.0, 2.0, 0.0], [0.0, 1.0, 0.5], [-1.0, 0.0, 1.0]], [0.5, 0.0, 1.0])
LOW_RANK = rs.LowRank([[1.0], [0.0], [2.0]], [[0.5, -1.0, 0.0]], [0.0, 1.0, 0.0])
MAPS = {"identity": rs.Identity(3), "translation": SHIFT, "diagonal": DIAGONAL, "dense": DENSE, "low-rank": LOW_RANK}
MAPS |= {"interpolated": rs.interpolate(DIAGONAL, 0.5)}
AXIS, NONE = [[1.0, 0.0, -1.0]], [0.0]
GATES = {
    "always": AlwaysGate(),
    "labels": LabelsGate(("a", "b")),
    "linear": LinearGate(("a", "b"), AXIS, NONE),
    "quadratic": QuadraticGate(("a", "b"), np.eye(3)[:2], np.stack([np.eye(3), 2 * np.eye(3)]), [0.0, 1.0]),
    "mlp": MLPGate(("a", "b"), np.eye(3)[:, :2], [0.0, 1.0], [[1.0], [-1.0]], [0.5]),
    "soft": SoftGate(("a", "b"), AXIS, NONE, [0.0, 2.0], [0.0, 1.0]),
}
ORIGIN = rs.Origin(
    **{"model": "tiny", "configuration": "c0de", "fingerprint": "c0ffee", "dtype": "float32", "site": "final"},
    **{"pooling": "mean", "positions": "all", "strength": 0.5, "data": "da7a", "licence": "MIT"},
)
OUTCOME = rs.Outcome(
    **{"judge": "judge", "judge_digest": "0ddba11", "auc": 0.75, "measure": "share", "source": "a", "target": "b"},
    **{"base": 0.75, "steered": 0.25, "effect": -0.5, "low": -0.75, "high": -0.25, "p": 0.125, "kl": 0.0625},
    **{"wikitext_ratio": 1.25, "prompts": 8, "samples": 4, "tokens": 16},
)
ROWS = np.array([[1, 0, 2], [0, 3, 1], [2, 1, -1], [1, 4, 2], [5, 0, 1], [4, 2, 3], [6, 1, 0], [5, 5, 4]], dtype=float)
LABELS, WEIGHTS, GROUPS = list("aaaabbbb"), [1.0, 2.0, 1.0, 2.0, 1.0, 1.0, 2.0, 1.0], [0, 0, 1, 1, 2, 2, 3, 4]


def steerings():
    """Return values by name whose files are the same bytes everywhere."""
    shift = rs.SteeringFunction({None: SHIFT})
    price = Price(rs.Fisher(8, np.diag([1.0, 2.0, 4.0]), 2, "generated"), None, 0.5, "final")
    return {
        **{f"map-{name}": value for name, value in MAPS.items()},
        **{f"gate-{name}": value for name, value in GATES.items()},
        **{f"under-none-{name}": rs.SteeringFunction({None: value}) for name, value in MAPS.items()},
        **{f"behind-{name}": rs.SteeringFunction({"a": DENSE}, gate, ("a", "b")) for name, gate in GATES.items()},
        "map-per-class": rs.SteeringFunction({0: SHIFT, 1: DIAGONAL}, LabelsGate((0, 1, 2)), (0, 1, 2)),
        "with-origin": shift.with_origin(ORIGIN),
        "with-price": shift.with_price(price),
        "with-outcome": shift.with_origin(ORIGIN).with_outcome(OUTCOME),
        "fisher": price.fisher,
    }


def moments():
    """Return moments and values with moments by name."""
    few, weighted, z = ROWS[:2], {"sample_weight": WEIGHTS, "groups": GROUPS}, np.arange(8.0)
    return {
        "moments-dense": rs.Moments.of(ROWS),
        "moments-factor": rs.Moments.of(few),
        "moments-grouped": rs.Moments.of(ROWS, **weighted),
        "class-moments": rs.ClassMoments.of(ROWS, LABELS),
        "class-moments-grouped": rs.ClassMoments.of(ROWS, LABELS, **weighted),
        "class-moments-factor": rs.ClassMoments.of(few, ["a", "b"]),
        "cross-moments": rs.CrossMoments.of(ROWS, z),
        "cross-moments-grouped": rs.CrossMoments.of(ROWS, z, **weighted),
        "cross-moments-factor": rs.CrossMoments.of(few, z[:2]),
        "estimator": rs.MeanMatching(target="b").fit(ROWS, LABELS),
        "certified": rs.MeanMatching(target="b", gate="always").fit(ROWS, LABELS).steering_,
    }


def tree(value):
    """Return the tree of keys and JSON types of a document; of a list, the trees that its items have."""
    if isinstance(value, dict):
        return {key: tree(item) for key, item in value.items()}
    if isinstance(value, list):
        trees = [tree(item) for item in value]
        return [one for i, one in enumerate(trees) if one not in trees[:i]]
    return "null" if value is None else {bool: "boolean", str: "string"}.get(type(value), "number")


def is_kept(kept, today):
    """Return whether ``today`` has every key of a kept tree, with its type; additions are allowed."""
    if isinstance(kept, dict) and isinstance(today, dict):
        return all(key in today and is_kept(one, today[key]) for key, one in kept.items())
    if isinstance(kept, list) and isinstance(today, list):
        return all(any(is_kept(one, other) for other in today) for one in kept)
    return kept == today


def facts(value, name=""):
    """Return all that a value of this package holds, by the path to it; the digest of a sketch is not compared."""
    if dataclasses.is_dataclass(value):
        parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, rs.MeanMatching):
        parts = {"params": value.get_params(), "steering": value.steering_, "moments": value.moments_}
    elif isinstance(value, np.ndarray):
        parts = {"dtype": value.dtype.str, "shape": value.shape, "values": value.ravel().tolist()}
    elif isinstance(value, Mapping | list | tuple | frozenset):
        parts = value if isinstance(value, Mapping) else dict(enumerate(value))
    else:
        return {name: "digest" if re.fullmatch("[0-9a-f]{32}", str(value)) else value}
    found = {name: type(value).__name__}
    for key, part in parts.items():
        found |= facts(part, f"{name}.{key!r}")
    return found


def same(one, other):
    """Return whether two results of `facts` are equal, floats to rounding."""
    if one.keys() != other.keys():
        return False
    pairs = [(value, other[key]) for key, value in one.items()]
    floats = all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in pairs if type(a) is type(b) is float)
    return floats and all(type(a) is type(b) and (a == b or type(a) is float) for a, b in pairs)


def written(value, read):
    """Return what ``read`` makes of the file of ``value``."""
    with tempfile.TemporaryDirectory() as folder:
        rs.save(value, Path(folder) / "f")
        return read(Path(folder) / "f")


def sha(value):
    return hashlib.sha256(written(value, Path.read_bytes)).hexdigest()


def structure(value):
    """Return names, dtypes and shapes of the arrays in the file of ``value``, and the tree of its header."""
    contents = written(value, read_file)
    arrays = {name: f"{array.dtype.str} {array.shape}" for name, array in contents.arrays.items()}
    return {"kind": contents.kind, "arrays": arrays, "header": tree(dict(contents.header))}


def take():
    """Return what is frozen of files, after adding those that are missing from the folder of kept files."""
    FOLDER.mkdir(exist_ok=True)
    values = steerings() | moments()
    for name in FROZEN:
        if not (path := FOLDER / f"{name}.safetensors").exists():
            rs.save(values[name], path)
    return {
        "bytes": {name: sha(value) for name, value in steerings().items()},
        "structures": {name: structure(value) for name, value in moments().items()},
        "read": {path.stem: sha(rs.load(path)) for path in sorted(FOLDER.glob("*.safetensors"))},
    }
