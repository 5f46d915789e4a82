"""What a search may cost: its budget, and sizes that depend on the effort, never on the speed of the machine."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

from repsurgery.errors import ParameterError
from repsurgery.price.fisher import check_budget

__all__ = ["DEMO", "DEMO_QUICK", "EFFORTS", "Budget", "Effort", "Measure", "Plan", "plan_of_effort"]

Effort = Literal["quick", "normal", "thorough"]
Measure = Literal["share", "mean"]
"""``share``: of continuations with a score of at least .5. ``mean``: of the scores."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The highest price: KL(base ‖ steered) in nats per token, and the ratio of WikiText perplexities or None."""

    kl: float
    wikitext: float | None = None

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "kl", check_budget(self.kl))
        except ParameterError as error:
            raise ParameterError(str(error).replace("kl_budget", "kl", 1)) from error
        ratio = self.wikitext
        if ratio is not None and not (isinstance(ratio, int | float) and 1 < ratio < math.inf):
            raise ParameterError(
                f"wikitext is {ratio!r}; it must be a ratio of perplexities above 1, such as 1.05 for at most 5 % more."
            )
        object.__setattr__(self, "wikitext", None if ratio is None else float(ratio))


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
    text_tokens : int
        Labelled texts are truncated to so many tokens.
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
    compared : bool
        Whether the three methods of the paper are measured at the same price, whatever the closed forms say of them.
    proposals : int
        The most further candidates that the sampler proposes after those.
    documents : int
        Documents of WikiText on which the winner is measured; candidates are measured on a quarter of them.
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
    text_tokens: int = 64
    fits: tuple[str, ...] = ("texts", "on-policy", "steps")
    depths: tuple[float, ...] = ()
    priced: int = 160
    draws: int = 4
    raced: int = 8
    gates: bool = True
    compared: bool = True
    proposals: int = 0
    documents: int = 8
    prices: tuple[float, ...] = (0.25, 0.5)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "proposals" else 1
            if field.type is int and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ParameterError(f"{field.name} is {value!r}; it must be a whole number of at least {least}.")
        if not self.fits or not set(self.fits) <= {"texts", "on-policy", "steps"}:
            raise ParameterError(f"fits is {self.fits!r}; it must name some of 'texts', 'on-policy' and 'steps'.")
        if not all(0 <= depth <= 1 for depth in self.depths):
            raise ParameterError(f"depths is {self.depths!r}; it must hold shares of the depth, between 0 and 1.")
        if not all(0 < price < 1 for price in self.prices):
            raise ParameterError(f"prices is {self.prices!r}; it must hold shares of the budget, between 0 and 1.")

    def to_dict(self) -> dict[str, Any]:
        """Return the sizes by name."""
        return asdict(self)


_FAST = Plan(
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
    documents=2,
    prices=(0.5,),
)
EFFORTS: Mapping[str, Plan] = MappingProxyType(
    {
        "quick": _FAST,
        "normal": replace(
            _FAST,
            writing=100,
            search=36,
            confirmation=90,
            writing_samples=8,
            samples=5,
            depths=(0.8,),
            priced=120,
            raced=8,
            gates=True,
            documents=4,
            prices=(0.25, 0.5),
        ),
        "thorough": Plan(
            writing=300,
            search=48,
            confirmation=160,
            writing_samples=8,
            samples=6,
            texts=300,
            depths=(0.5, 0.8),
            priced=200,
            raced=12,
            proposals=40,
        ),
    }
)
"""The sizes of each effort."""
DEMO = replace(
    _FAST,
    writing=24,
    search=16,
    confirmation=44,
    writing_samples=5,
    samples=3,
    texts=80,
    priced=30,
    raced=2,
    documents=1,
)
"""The sizes of the demonstration: less than three minutes on two cores."""
DEMO_QUICK = replace(
    DEMO,
    writing=14,
    search=8,
    confirmation=28,
    writing_samples=4,
    tokens=16,
    texts=50,
    priced=16,
    compared=False,
    prices=(),
)
"""The sizes of its quick version: less than 90 seconds."""


def plan_of_effort(effort: str) -> Plan:
    """Return the sizes of ``effort``."""
    if effort not in EFFORTS:
        raise ParameterError(f"effort is {effort!r}; it must be one of {list(get_args(Effort))}.")
    return EFFORTS[effort]
