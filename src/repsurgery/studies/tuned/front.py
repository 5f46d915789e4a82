"""The Pareto front of candidates: the largest effect for each price."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from repsurgery.studies.common.estimate import Estimate

__all__ = ["effect_of", "estimate_of", "pareto_front", "price_of"]

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
    measured = [
        (price, effect.value, candidate)
        for candidate in candidates
        if (price := price_of(candidate)) is not None and (effect := effect_of(candidate)) is not None
    ]
    front: list[tuple[float, float, Candidate]] = []
    for price, effect, candidate in sorted(measured, key=lambda item: item[:2]):
        # sorted by price, then effect: only the last of the front can dominate this one or be equal to it
        if not front or effect < front[-1][1] or (price, effect) == front[-1][:2]:
            front.append((price, effect, candidate))
    return [candidate for _, _, candidate in front]
