"""The ledger names parts that were repeated, left out or changed, which both ways of counting would count alike."""

import re
import warnings
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import repsurgery as rs
from repsurgery.errors import DuplicateWarning, FileFormatError, LedgerError
from repsurgery.files import Contents, read_file, write_file
from repsurgery.moments import CrossMoments
from repsurgery.moments.ledger import Ledger, Part
from repsurgery.moments.stream import stream_moments
from tests.strategies import structured

KINDS = ("sparse", "counts", "normal", "constant", "tied", "huge")


def part(seed, n=20, w=None):
    return rs.Moments.of(structured(seed, n, KINDS), sample_weight=w)


PARTS = [part(seed) for seed in range(6)]
PLAN = {f"shard {i}": m for i, m in enumerate(PARTS)}


def total(moments):
    """Return the sum without the warning of `+`: classes merge silently, and their ledgers show what they hold."""
    return reduce(rs.ClassMoments.merge, [rs.ClassMoments({0: m}) for m in moments])[0]


def other_rows(i):
    """Return the rows of a part with one number changed by a millionth."""
    X = structured(i, 20, KINDS)
    X[3, 0] += 1e-6
    return rs.Moments.of(X)


WRONG = {
    "the first is left out": (PARTS[1:], "shard 0 is missing"),
    "the last is left out": (PARTS[:-1], "shard 5 is missing"),
    "two are left out": (PARTS[2:], "shard 0 is missing.*; shard 1 is missing"),
    "one is counted twice": ([*PARTS, PARTS[2]], "shard 2 was counted 2 times"),
    "one is counted four times": ([*PARTS, *[PARTS[2]] * 3], "shard 2 was counted 4 times"),
    "one is counted twice in place of another": ([*PARTS[:5], PARTS[0]], "shard 5 is missing"),
    "one number of a part has changed": ([*PARTS[:5], other_rows(5)], "shard 5 has changed"),
    "a part has a row less": ([*PARTS[:5], rs.Moments.of(structured(5, 20, KINDS)[:-1])], "shard 5 has changed"),
    "a part has other weights": ([*PARTS[:5], part(5, w=np.full(20, 2.0))], "shard 5 has changed"),
    "a part outside the plan": ([*PARTS, part(9)], "a part outside the plan was counted"),
    "a part was removed": ([total(PARTS) - PARTS[3]], "shard 3 is missing"),
    "rows that were never a part were removed": (
        [total(PARTS) - rs.Moments.of(structured(3, 20, KINDS)[:4])],
        "a part was removed",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_ledger_names_every_omission_repetition_and_change(name):
    moments, message = WRONG[name]
    whole = total(moments)
    whole.check_sketch()  # both ways of counting agree on the wrong rows
    with pytest.raises(LedgerError, match=message):
        whole.ledger.require(PLAN)


def test_the_right_parts_pass_in_any_order_and_nesting():
    total(PARTS).ledger.require(PLAN)
    total([total(PARTS[3:]), total(PARTS[:3][::-1])]).ledger.require(PLAN)
    total(PARTS).ledger.require({"all": [p for m in PARTS for p in m.ledger.parts]})


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_removing_a_part_strikes_it_from_the_ledger(order, gone):
    whole = total([PARTS[i] for i in order])
    left = whole
    for i in gone:
        left = left - PARTS[i]
    assert set(left.ledger.parts) == {PARTS[i].ledger.parts[0] for i in set(range(6)) - gone}
    assert left.ledger.removed == ()
    assert left.ledger.rows == left.count
    assert (Ledger() - PARTS[0].ledger + PARTS[0].ledger) == Ledger()


def test_adding_a_part_twice_is_warned_of_wherever_moments_are_added():
    X, z = structured(0, 30, KINDS), np.arange(30) % 2
    by_class, joint = rs.ClassMoments.of(X, z), CrossMoments.of(X, X[:, 2])
    for moments, classes in ((rs.Moments.of(X), [""]), (by_class, [" of class 0", " of class 1"]), (joint, [""])):
        with pytest.warns(DuplicateWarning) as caught:
            moments + moments
        assert [re.search(r"weight \d+\)(.*) is already among", str(w.message))[1] for w in caught] == classes
        assert {w.filename for w in caught} == {__file__}
    with pytest.warns(DuplicateWarning, match="counted twice"):
        rs.MeanMatching(source=0, target=1).partial_fit(X, z).partial_fit(X, z)


def test_equal_rows_in_other_batches_are_other_parts():
    # the counter-check of what a digest can tell: it is of the rows in their order, as one part
    X = structured(0, 30, KINDS)
    halves = rs.Moments.of(X[:15]) + rs.Moments.of(X[15:])
    assert not halves.ledger.shared(rs.Moments.of(X).ledger)
    assert rs.Moments.of(X).ledger == rs.Moments.of(X.copy()).ledger


def test_a_long_ledger_is_searched_as_its_set():
    many = Ledger(tuple(Part(f"{i:032x}", 1, 1.0) for i in range(1000)))
    grown = reduce(Ledger.__add__, [Ledger((p,)) for p in many.parts])
    assert grown == many
    assert grown.shared(Ledger(many.parts[500:502])) == many.parts[500:502]
    assert (grown + Ledger(many.parts[:1])).repeated() == many.parts[:1]
    assert (grown - Ledger(many.parts[:1])).shared(many) == many.parts[1:]


@pytest.mark.parametrize("entry", [["x", 1, 1.0, 2], ["x", 0, 1.0], ["x", 1, -1.0], [3, 1, 1.0], ["x", True, 1.0]])
def test_a_ledger_of_impossible_parts_is_refused(tmp_path, entry):
    rs.save(PARTS[0], tmp_path / "m")
    contents = read_file(tmp_path / "m")
    facts = {**contents.header["classes"][0], "ledger": {"parts": [entry], "removed": []}}
    write_file(tmp_path / "m", Contents(contents.kind, {"classes": [facts]}, contents.arrays))
    with pytest.raises(FileFormatError):
        rs.load(tmp_path / "m")


def test_a_file_keeps_its_ledger(tmp_path):
    whole = total(PARTS)
    rs.save(whole, tmp_path / "m")
    loaded = rs.load(tmp_path / "m")
    assert loaded.ledger == whole.ledger
    loaded.ledger.require(PLAN)


def joint(i, change=lambda z: z):
    X = structured(i, 20, KINDS)
    return CrossMoments.of(X, change(X[:, 2] + np.arange(20) / 7))


CONCEPTS = {
    "one number": lambda z: z + 1e-6 * (np.arange(20) == 3),
    "exchanged between two rows": lambda z: z[[1, 0, *range(2, 20)]],
    "the other sign": lambda z: -z,
}


@pytest.mark.parametrize("name", CONCEPTS)
def test_the_ledger_names_a_part_whose_concept_has_changed(name, tmp_path):
    plan = {f"shard {i}": joint(i) for i in range(3)}
    whole = reduce(CrossMoments.__add__, plan.values())
    whole.rows.ledger.require({shard: m.rows for shard, m in plan.items()})
    rs.save(whole, tmp_path / "m")
    rs.load(tmp_path / "m").rows.ledger.require({shard: m.rows for shard, m in plan.items()})
    changed = plan["shard 0"] + plan["shard 1"] + joint(2, CONCEPTS[name])
    changed.check_sketch()
    with pytest.raises(LedgerError, match="shard 2 has changed"):
        changed.rows.ledger.require({shard: m.rows for shard, m in plan.items()})


def test_the_ledger_names_a_part_whose_groups_have_changed():
    X = structured(0, 20, KINDS)
    z, groups = np.repeat([0, 1], 10), np.arange(20) // 2
    for count in (rs.ClassMoments.of, lambda X, z, *, groups: stream_moments([(X, z, groups)])):
        plan, other = count(X, z, groups=groups)[0], count(X, z, groups=np.arange(20) // 5)[0]
        with pytest.raises(LedgerError, match="shard has changed"):
            other.ledger.require({"shard": plan})
        count(X, z, groups=groups)[0].ledger.require({"shard": plan})
    # groups of one row each are no groups
    assert rs.Moments.of(X, groups=np.arange(20)).ledger == rs.Moments.of(X).ledger


def test_equal_rows_of_other_concepts_are_no_repetition():
    with warnings.catch_warnings():
        warnings.simplefilter("error", DuplicateWarning)
        joint(0) + joint(0, CONCEPTS["one number"])


@pytest.mark.parametrize("what", ["count", "weight", "mean", "squares", "residue", "version", "groups"])
def test_the_digest_of_a_part_covers_each_number_of_its_sketch(what):
    sketch = rs.Moments.of(structured(0, 20, KINDS), groups=np.arange(20) // 2).sketch
    value = getattr(sketch, what)
    if what == "groups":
        others = [(value[0] + 1, value[1]), (value[0], value[1] + 1), None]
    elif isinstance(value, np.ndarray):
        others = [np.where(np.arange(len(value)) == j, np.nextafter(value, np.inf), value) for j in range(len(value))]
    else:
        others = [value + 1]
    digests = {replace(sketch, **{what: other}).digest() for other in others}
    assert len(digests) == len(others)
    assert sketch.digest() not in digests
