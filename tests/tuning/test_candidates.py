from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsurgery.tuning.candidates import SPACE, Candidate, candidates, canonical
from repsurgery.tuning.forms import fitted_function

EVERY = st.builds(
    Candidate,
    site=st.sampled_from(["final", "layers.0"]),
    price=st.sampled_from([0.5, 1.0]),
    **{name: st.sampled_from(values) for name, values in SPACE.items()},
)


@given(one=EVERY, other=EVERY)
def test_names_are_equal_exactly_where_canonical_candidates_are(one, other):
    assert (one.name == other.name) == (canonical(one) == canonical(other))
    assert canonical(canonical(one)) == canonical(one)


def test_every_canonical_candidate_has_a_name_of_its_own():
    every = {canonical(Candidate("final", *values)) for values in product(*SPACE.values())}
    assert len({one.name for one in every}) == len(every)
    assert len(every) < len(list(product(*SPACE.values())))


IGNORED = [
    ("mean", {"shrinkage": "pooled 0.5", "damping": 1.0}),
    ("mimic", {"damping": 1.0}),
    ("leace", {"shrinkage": "pooled", "damping": 0.1, "scope": "gate"}),
    ("natural", {"shrinkage": "pooled", "fit": "steps"}),
    ("natural-mean", {"shrinkage": "pooled 0.8"}),
    ("blend", {"shrinkage": "pooled", "fit": "steps"}),
]


@pytest.mark.parametrize(("method", "ignored"), IGNORED)
def test_settings_that_a_method_ignores_are_merged(evidence, method, ignored):
    plain = Candidate("final", method, "on-policy", "pooled 0.5" if method == "mimic" else "none")
    other = replace(plain, **ignored)
    assert canonical(other) == canonical(plain)
    # merged candidates are the same function, whatever was written down
    assert fitted_function(canonical(other), evidence).digest() == fitted_function(canonical(plain), evidence).digest()


@pytest.mark.parametrize(
    ("method", "read"),
    [
        ("mean", {"fit": "steps"}),
        ("mimic", {"shrinkage": "pooled 0.8"}),
        ("leace", {"fit": "texts"}),
        ("natural", {"damping": 1.0}),
        ("natural", {"fit": "texts"}),
        ("natural-mean", {"fit": "steps"}),
        ("blend", {"damping": 0.1}),
        ("mean", {"scope": "gate"}),
    ],
)
def test_settings_that_a_method_reads_make_another_function(evidence, method, read):
    plain = canonical(Candidate("final", method, "on-policy", "pooled 0.5" if method == "mimic" else "none"))
    other = canonical(replace(plain, **read))
    assert other != plain
    assert fitted_function(other, evidence).digest() != fitted_function(plain, evidence).digest()


def test_candidates_are_canonical_distinct_and_can_be_fitted_on_what_there_is():
    every = list(candidates(["final", "layers.0"], ["texts", "on-policy", "steps"]))
    assert len(set(every)) == len(every)
    assert all(one == canonical(one) and one.scope == "all" and one.price == 1 for one in every)
    assert {one.method for one in every} == set(SPACE["method"])
    only = list(candidates(["final"], ["texts"]))
    assert {one.fit for one in only} == {"texts"}
    assert "blend" not in {one.method for one in only}
