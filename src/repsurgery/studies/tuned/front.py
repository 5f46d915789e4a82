"""The Pareto front of candidates: the largest effect for each price."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.front import undominated

__all__ = ["chosen_of", "compared_in_search", "effect_of", "estimate_of", "pareto_front", "price_of"]

Candidate = Mapping[str, Any]


def price_of(candidate: Candidate) -> float | None:
    """Return the measured KL(base ‖ steered) of a candidate in nats per token; None if it was not measured."""
    price = candidate.get("measured_kl")
    return float(price) if price is not None and math.isfinite(price) else None


def effect_of(candidate: Candidate) -> Estimate | None:
    """Return the effect of a candidate (steered minus base; negative is good); None if it was not measured."""
    effect = estimate_of(candidate.get("effect"))
    if effect is not None:
        return effect
    base, steered = candidate.get("base"), candidate.get("measure")
    return None if base is None or steered is None else Estimate(steered - base)


def estimate_of(effect: Mapping[str, Any] | None) -> Estimate | None:
    """Return a difference of the record, with interval and p-value if it has them; None without a value."""
    if effect is None or effect.get("value") is None:
        return None
    return Estimate(effect["value"], effect.get("low"), effect.get("high"), effect.get("p"))


def chosen_of(record: Mapping[str, Any]) -> Candidate | None:
    """Return the chosen candidate with its figures of the search; None if the record lists none."""
    return next((c for c in record.get("candidates", ()) if c.get("status") == "chosen"), None)


def compared_in_search(record: Mapping[str, Any]) -> bool:
    """Return whether the compared methods have figures of the search: then one of them is a candidate of the race.

    Otherwise they were measured on the confirmation prompts.
    """
    raced = [(c.get("name"), c.get("effect"), c.get("measured_kl")) for c in record.get("candidates", ())]
    return any((c.get("name"), c.get("effect"), c.get("measured_kl")) in raced for c in record.get("compared", ()))


def pareto_front(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates that no other one dominates, by increasing price.

    A candidate dominates another if its price is not higher and its effect not weaker (not closer to a rise), and at
    least one of the two is strictly better. Candidates without a measured price or effect take no part; of candidates
    with equal price and equal effect, all are returned, in their order.

    Guarantees
    ----------
    No candidate of the front is dominated, and every measured candidate outside of it is
    (test_the_front_consists_of_the_candidates_that_no_other_one_dominates).
    """
    figures = ((price_of(candidate), effect_of(candidate), candidate) for candidate in candidates)
    measured = [(p, e.value, candidate) for p, e, candidate in figures if p is not None and e is not None]
    return [measured[i][2] for i in undominated([(price, effect) for price, effect, _ in measured])]
