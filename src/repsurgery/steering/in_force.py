"""The strength at which a steering is applied, and what to say where it is far from what was measured."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repsurgery.affine.algebra import beyond_the_map
from repsurgery.callers import warn_caller
from repsurgery.errors import ExtrapolationWarning
from repsurgery.origin import ChosenStrength

if TYPE_CHECKING:
    from repsurgery.steering.function import SteeringFunction

__all__ = ["InForce", "strength_in_force"]

FARTHEST = 2.0
"""Multiples of a chosen strength up to which it needs no warning."""


@dataclass(frozen=True, slots=True)
class InForce:
    """An effective strength.

    Attributes
    ----------
    strength : float
    far : str
        A sentence, where it is more than twice the one at which the effect was measured; else empty.
    beyond : str
        A sentence, where it lies outside of [0, 1] and is not near a strength that a measurement or a price chose; else
        empty.
    """

    strength: float
    far: str = ""
    beyond: str = ""

    def warn(self) -> None:
        """Issue the sentence, if there is one, as an `ExtrapolationWarning` at the caller's line."""
        if sentence := self.far or self.beyond:
            warn_caller(sentence, ExtrapolationWarning)


def strength_in_force(function: "SteeringFunction", strength: float | None = None, scale: float = 1.0) -> InForce:
    """Return the strength at which ``function`` is applied; see `Origin.effective_strength`.

    Parameters
    ----------
    function : SteeringFunction
    strength, scale
        As for `lm.steer`.

    Guarantees
    ----------
    Above twice the measured strength there is a sentence, up to it there is none, however the strength is written
    (test_above_twice_the_measured_strength_there_is_a_warning,
    test_the_same_strength_is_said_alike_however_it_is_written).
    What a price or a measurement chose gets none (test_a_strength_that_a_price_chose_needs_no_warning).
    """
    origin, measured = function.origin, function.outcome is not None
    t, own, base = (origin.effective_strength(*how) for how in ((strength, scale), (), (strength,)))
    if measured and abs(t) > FARTHEST * abs(own):
        return InForce(
            t,
            far=f"strength {t:.3g} is more than twice {own:.3g}, at which the effect of this steering was measured, "
            "and texts often break there. Leave the strength out and use a scale of at most 2; 1 is as measured.",
        )
    chosen = [own] if measured or (function.price is not None and origin.strength is not None) else []
    chosen += [base] if isinstance(base, ChosenStrength) else []
    if 0 <= t <= 1 or any(abs(t) <= FARTHEST * abs(one) for one in chosen):
        return InForce(t)
    return InForce(t, beyond=beyond_the_map(t))
