"""The Pareto front by its definition, compared with all pairs of candidates."""

from hypothesis import given
from hypothesis import strategies as st

from repsurgery.studies.tuned.front import effect_of, pareto_front, price_of
from tests.studies.tuned_record import CANDIDATES

few = st.sampled_from([0.0, 0.1, 0.2, 0.3])  # few values, so that ties occur
measured = st.builds(
    lambda kl, value: {"measured_kl": kl, "effect": {"value": -value, "low": None, "high": None, "p": None}}, few, few
)
unmeasured = st.sampled_from([{"measured_kl": None, "effect": {"value": -1.0}}, {"measured_kl": 0.0, "effect": None}])


def dominates(a, b):
    cheaper, stronger = price_of(a) - price_of(b), effect_of(a).value - effect_of(b).value
    return cheaper <= 0 and stronger <= 0 and (cheaper < 0 or stronger < 0)


@given(st.lists(st.one_of(measured, unmeasured), max_size=12))
def test_the_front_consists_of_the_candidates_that_no_other_one_dominates(candidates):
    known = [c for c in candidates if price_of(c) is not None and effect_of(c) is not None]
    expected = [c for c in known if not any(dominates(other, c) for other in known)]
    front = pareto_front(candidates)
    assert sorted(map(id, front)) == sorted(map(id, expected))
    assert [price_of(c) for c in front] == sorted(price_of(c) for c in front)


def test_a_dominated_candidate_joins_the_front_once_its_rival_is_gone():
    front = pareto_front(CANDIDATES)
    assert [c["status"] for c in front if c["measured_kl"] == 0.097] == ["chosen"]
    rival = next(c for c in CANDIDATES if c["method"] == "natural")
    assert rival not in front
    assert rival in pareto_front([c for c in CANDIDATES if c["status"] != "chosen"])


def test_an_effect_without_an_interval_is_steered_minus_base():
    assert effect_of({"base": 0.5, "measure": 0.25, "effect": None}).value == -0.25
    assert effect_of({"base": 0.5, "measure": None}) is None
