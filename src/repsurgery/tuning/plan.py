"""How much work a search does: sizes that depend on the chosen effort, never on the speed of the machine."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any, Literal, get_args

from repsurgery.errors import ParameterError

__all__ = ["DEMO", "DEMO_QUICK", "EFFORTS", "Effort", "Plan", "plan_of_effort"]

Effort = Literal["quick", "normal", "thorough"]


@dataclass(frozen=True, slots=True, kw_only=True)
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
    texts : int
        The most labelled texts of each label to fit on.
    fits : tuple of str
        What to fit on, of "texts", "on-policy" and "steps"; see `Candidate`.
    depths : tuple of float
        Layers to consider besides "final", as shares of the depth of the model.
    priced : int
        Continuations along which the Fisher matrices are computed.
    draws : int
        Tokens drawn per position for a Fisher matrix below "final".
    raced : int
        The most candidates that the closed forms leave for the race.
    gates : bool
        Whether gates are tried behind the best candidate.
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
    tokens: int = 20
    texts: int = 400
    fits: tuple[str, ...] = ("texts", "on-policy", "steps")
    depths: tuple[float, ...] = ()
    priced: int = 160
    draws: int = 4
    raced: int = 8
    gates: bool = True
    proposals: int = 0
    prices: tuple[float, ...] = (0.25, 0.5)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "proposals" else 1
            if field.type is int and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ParameterError(f"{field.name} is {value!r}; it must be a whole number of at least {least}.")

    def to_dict(self) -> dict[str, Any]:
        """Return the sizes by name."""
        return asdict(self)


EFFORTS: Mapping[str, Plan] = MappingProxyType(
    {
        "quick": Plan(
            writing=40,
            search=16,
            confirmation=40,
            writing_samples=6,
            samples=4,
            texts=100,
            fits=("texts", "on-policy"),
            priced=60,
            raced=3,
            gates=False,
            prices=(0.5,),
        ),
        "normal": Plan(
            writing=120, search=40, confirmation=100, writing_samples=8, samples=5, depths=(0.5, 0.8), raced=8
        ),
        "thorough": Plan(
            writing=400,
            search=60,
            confirmation=200,
            writing_samples=8,
            samples=8,
            texts=2000,
            depths=(0.3, 0.5, 0.65, 0.8, 0.9),
            priced=300,
            draws=8,
            raced=12,
            proposals=40,
        ),
    }
)
"""The sizes of each effort."""
DEMO = Plan(
    writing=32,
    search=16,
    confirmation=50,
    writing_samples=6,
    samples=4,
    texts=80,
    fits=("texts", "on-policy"),
    priced=40,
    raced=2,
    gates=False,
    prices=(0.5,),
)
"""The sizes of the demonstration: less than three minutes on two cores."""
DEMO_QUICK = Plan(
    writing=20,
    search=8,
    confirmation=30,
    writing_samples=5,
    samples=3,
    tokens=16,
    texts=40,
    fits=("texts", "on-policy"),
    priced=24,
    raced=1,
    gates=False,
    prices=(),
)
"""The sizes of its quick version: less than 90 seconds."""


def plan_of_effort(effort: str) -> Plan:
    """Return the sizes of ``effort``."""
    if effort not in EFFORTS:
        raise ParameterError(f"effort is {effort!r}; it must be one of {list(get_args(Effort))}.")
    return EFFORTS[effort]
