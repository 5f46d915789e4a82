"""How much work a search does: sizes that depend on the chosen effort, never on the speed of the machine."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

from repsurgery.arrays import check_integer
from repsurgery.errors import ParameterError

__all__ = ["DEMO", "DEMO_QUICK", "EFFORTS", "Effort", "Plan", "make_plan"]

Effort = Literal["quick", "normal", "thorough"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of a search.

    Attributes
    ----------
    writing, search, confirmation : int
        The most prompts for each part; fewer prompts are divided in these proportions.
    writing_samples, samples : int
        Continuations of each prompt, for the fits and for the measurements.
    tokens : int
        The length of a continuation.
    depths : tuple of float
        Layers to consider besides "final", as shares of the depth of the model.
    priced : int
        Continuations along which the Fisher matrices are computed.
    draws : int
        Tokens drawn per position for a Fisher matrix below "final".
    raced : int
        The most candidates that the closed forms leave for the race.
    proposals : int
        The most further candidates that the sampler proposes after those.
    prices : tuple of float
        Further prices at which the winner is measured, as shares of the budget: the front.
    """

    writing: int
    search: int
    confirmation: int
    writing_samples: int
    samples: int
    tokens: int
    depths: tuple[float, ...]
    priced: int
    draws: int
    raced: int
    proposals: int
    prices: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the sizes by name."""
        return asdict(self)


EFFORTS: Mapping[str, Plan] = MappingProxyType(
    {
        "quick": Plan(40, 16, 40, 8, 4, 20, (), 80, 4, 3, 0, (0.5,)),
        "normal": Plan(120, 40, 100, 8, 5, 20, (0.5, 0.8), 160, 4, 8, 0, (0.25, 0.5)),
        "thorough": Plan(400, 60, 200, 8, 8, 20, (0.3, 0.5, 0.65, 0.8, 0.9), 300, 8, 12, 40, (0.25, 0.5)),
    }
)
"""The sizes of each effort."""
DEMO = Plan(40, 20, 60, 6, 4, 20, (), 60, 4, 3, 0, (0.5,))
"""The sizes of the demonstration: less than three minutes on two cores."""
DEMO_QUICK = Plan(24, 12, 40, 4, 3, 16, (), 40, 4, 1, 0, ())
"""The sizes of its quick version: less than 90 seconds."""


def make_plan(effort: str = "normal", *, samples: int | None = None, tokens: int | None = None) -> Plan:
    """Return the sizes of ``effort``, with some of them replaced."""
    if effort not in EFFORTS:
        raise ParameterError(f"effort is {effort!r}; it must be one of {list(get_args(Effort))}.")
    given = {"samples": samples, "tokens": tokens}
    return replace(EFFORTS[effort], **{name: check_integer(name, n) for name, n in given.items() if n is not None})
