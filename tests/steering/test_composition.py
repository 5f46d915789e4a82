"""A composition applies both maps at the strengths of their origins, and belongs to the one place that both name."""

import itertools

import numpy as np
import pytest

import repsurgery as rs
from repsurgery.errors import ParameterError

D = 6
PLACE = {"model": "lab/tiny", "configuration": "c0", "fingerprint": "f0", "dtype": "float32", "site": "layers.1"}
STRENGTHS = (None, 1.0, 0.0, 2.0, -0.75)


def maps(seed):
    """Return one map of every structure."""
    rng = np.random.default_rng(seed)
    return {
        "identity": rs.Identity(D),
        "translation": rs.Translation(rng.normal(size=D)),
        "diagonal": rs.Diagonal(rng.normal(size=D), rng.normal(size=D)),
        "low rank": rs.LowRank(rng.normal(size=(D, 2)), rng.normal(size=(2, D)), rng.normal(size=D)),
        "dense": rs.Dense(rng.normal(size=(D, D)), rng.normal(size=D)),
    }


def function(m, **origin):
    return rs.SteeringFunction({None: m}, origin=rs.Origin(**origin))


def stepped(X, m, strength):
    """Return X (1 − t) + t (X Wᵀ + b) in plain NumPy."""
    t = 1.0 if strength is None else strength
    return (1 - t) * X + t * (X @ m.weight.T + m.bias)


@pytest.mark.parametrize(("first", "then"), list(itertools.product(maps(0), maps(1))))
def test_a_composition_folds_both_strengths(first, then, tmp_path):
    X = np.random.default_rng(2).normal(size=(20, D))
    a, b = maps(0)[first], maps(1)[then]
    for s, t in itertools.product(STRENGTHS, STRENGTHS):
        inner, outer = function(a, strength=s, **PLACE), function(b, strength=t, **PLACE)
        both = outer.after(inner)
        expected = stepped(stepped(X, a, s), b, t)
        slack = 1e-12 * max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(both(X), expected, atol=slack)
        # it acts at strength 1 wherever it is used, also once it is saved
        rs.save(both, tmp_path / "both")
        again = rs.load(tmp_path / "both")
        np.testing.assert_allclose(again(X), expected, atol=slack)
        assert again.origin.effective_strength() == 1 and again.origin == both.origin
    # counter-check: the maps at strength 1 are another function, unless one of them does nothing
    if "identity" not in (first, then):
        assert np.abs(function(b, strength=2).after(function(a, strength=3))(X) - b(a(X))).max() > 0.1


def test_three_compositions_are_associative():
    X = np.random.default_rng(3).normal(size=(20, D))
    a, b, c = (function(maps(i)["dense"], strength=s, **PLACE) for i, s in enumerate((0.3, 2.0, -0.5)))
    np.testing.assert_allclose(c.after(b).after(a)(X), c.after(b.after(a))(X), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ({"site": "layers.0"}, {"site": "layers.1"}),
        ({"positions": "all"}, {"positions": "generated"}),
        ({"positions": None}, {"positions": "generated"}),  # None acts at all positions
        ({"positions": "last"}, {"positions": None}),
        ({"model": "one"}, {"model": "another"}),
        ({"configuration": "c0"}, {"configuration": "c1"}),
        ({"fingerprint": "f0"}, {"fingerprint": "f1"}),
        ({"fingerprint": "f0", "configuration": "c0"}, {"fingerprint": "f0", "configuration": "c1"}),
    ],
)
def test_what_nested_blocks_do_at_two_places_is_refused(inner, outer):
    a, b = function(maps(0)["dense"], **inner), function(maps(1)["dense"], **outer)
    for one, other in ((a, b), (b, a)):
        with pytest.raises(ParameterError, match=r"Steer with nested blocks of lm\.steer"):
            one.after(other)
    X = np.ones((2, D))
    free = b.with_origin(rs.Origin()).after(a.with_origin(rs.Origin()))  # the remedy for vectors
    np.testing.assert_allclose(free(X), maps(1)["dense"](maps(0)["dense"](X)), atol=1e-12)


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (PLACE, PLACE),
        ({}, PLACE),
        (PLACE, {"site": "layers.1"}),
        ({"positions": "all"}, {"positions": None}),
        ({"model": "lab/tiny"}, {"model": "tiny"}),  # a hub id and a folder
        ({"model": "one", "fingerprint": "f0"}, {"model": "renamed", "fingerprint": "f0"}),
        # weights rounded to float16 have another digest than those rounded to bfloat16
        ({"fingerprint": "f0", "dtype": "float16"}, {"fingerprint": "f1", "dtype": "bfloat16"}),
    ],
)
def test_origins_of_one_place_are_joined(inner, outer):
    a, b = function(maps(0)["dense"], **inner), function(maps(1)["dense"], **outer)
    for one, other in ((a, b), (b, a)):
        joined = one.after(other).origin
        for name in ("site", "configuration"):
            assert getattr(joined, name) == (inner.get(name) or outer.get(name))
        assert joined.strength is None and (joined.positions or "all") == "all"


def test_only_facts_of_both_and_every_licence_are_kept():
    a = function(maps(0)["dense"], data="d0", pooling="last", dtype="float32", licence="MIT")
    b = function(maps(1)["dense"], data="d1", pooling="last", dtype="bfloat16", licence="CC BY 4.0")
    origin = b.after(a).origin
    assert (origin.data, origin.pooling, origin.dtype, origin.licence) == (None, "last", None, "MIT; CC BY 4.0")
    assert a.after(a).origin == a.origin
