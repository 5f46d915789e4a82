"""Candidates: the settings among which a search chooses, and the registry of the methods that are raced."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import update_wrapper
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from repsurgery.gates import Gate
from repsurgery.registry import Registry
from repsurgery.steering.function import SteeringFunction

if TYPE_CHECKING:
    from repsurgery.tuning.evidence import Evidence

__all__ = [
    "CANDIDATES",
    "METHODS_OF_PAPER",
    "SPACE",
    "Candidate",
    "Gating",
    "Method",
    "Offers",
    "candidates",
    "canonical",
    "gatings",
    "methods",
    "space",
]

Fit = Literal["texts", "on-policy", "steps"]
Scope = Literal["all", "gate", "soft"]
Offers = Callable[["Evidence", str], Iterable[tuple[str, SteeringFunction]]]
"""What the entry point group ``repsurgery.candidates`` takes: a function of the evidence and a site that gives pairs of
the name of a candidate and its steering function at strength 1."""

SPACE: dict[str, list[Any]] = {
    "method": ["mean", "mimic", "leace", "natural", "natural-mean", "blend"],
    "fit": ["texts", "on-policy", "steps"],
    "shrinkage": ["none", "pooled", "pooled 0.5", "pooled 0.8"],
    "scope": ["all", "gate", "soft"],
    "damping": [0.1, 0.3, 1.0],
}
"""The values of every choice besides the site, which depends on the model. Further methods come after these."""
METHODS_OF_PAPER = ("mean", "mimic", "leace")
"""Mean matching, MiMiC and LEACE."""
CANDIDATES: Registry[Any] = Registry(
    "raced method",
    home="repsurgery.tuning.methods",
    group="repsurgery.candidates",
    needs="a function of evidence and a site",
)
"""What `tune` races, by name: each `Method`, each `Gating`, and the `Offers` of plug-ins."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One setting.

    Attributes
    ----------
    site : str
    method : str
        A name of `CANDIDATES`.
    fit : {"texts", "on-policy", "steps", "evidence"}
        What means and covariances are fitted on: every token of the labelled texts; every step of the model's own
        texts, labelled by the score of the text; or the same steps, each labelled by its own credit. "evidence": what
        a plug-in chose of them.
    shrinkage : {"none", "pooled", "pooled 0.5", "pooled 0.8"}
        Of MiMiC; "pooled" chooses its alpha itself.
    scope : str
        Which steps are steered: "all", or the name of a `Gating` in `CANDIDATES`.
    damping : float
        Of the natural shift.
    price : float
        The share of the budget that it may cost.
    text : str
        The name that a plug-in gave it; empty for our own methods.
    """

    site: str
    method: str
    fit: Fit | Literal["evidence"]
    shrinkage: str = "none"
    scope: str = "all"
    damping: float = 0.3
    price: float = 1.0
    text: str = ""

    @property
    def name(self) -> str:
        """All that distinguishes it from other candidates at its site, in words."""
        c = canonical(self)
        extras = [
            *([] if c.scope == "all" else [gatings()[c.scope].words]),
            *([] if c.price == 1 else [f"{c.price:.3g} {'times' if c.price > 1 else 'of'} the price"]),
        ]
        if c.text:
            return ", ".join([c.text, *extras])
        method = methods()[c.method]
        settings = [
            *([f"shrinkage {c.shrinkage}"] if len(method.shrinkages) > 1 else []),
            *([f"damping {c.damping:g}"] if c.damping != 0.3 else []),
        ]
        return ", ".join([f"{c.method} on {c.fit} at {c.site}", *settings, *extras])

    @property
    def needs(self) -> set[str]:
        """The fits whose data it needs."""
        return set() if self.text else {self.fit, *methods()[self.method].also}

    @property
    def is_credited(self) -> bool:
        """Whether it needs gradients of the score of the model's own texts."""
        return not self.text and methods()[self.method].from_gradients and self.needs != {"texts"}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name; a text only where there is one."""
        return {name: value for name, value in asdict(self).items() if name != "text" or value}


@dataclass(eq=False)
class Method:
    """One of our own methods: a function of a candidate and evidence, and the settings that this function reads.

    It is registered in `CANDIDATES`, and also of the type `Offers`.

    Attributes
    ----------
    function : callable
        From a candidate and evidence to a steering function at strength 1.
    fits : tuple of str
        The fits that it tells apart; others count as the last of these.
    also : tuple of str
        Fits that it always needs besides that of the candidate.
    shrinkages : tuple of str
        Those that it tells apart; others count as the first of these.
    from_gradients : bool
        Whether gradients take part in its fit, and a damping.
    gated : bool
        Whether gates may be put before it.
    """

    function: Callable[[Candidate, "Evidence"], SteeringFunction]
    fits: tuple[Fit, ...] = ("texts", "on-policy", "steps")
    also: tuple[Fit, ...] = ()
    shrinkages: tuple[str, ...] = ("none",)
    from_gradients: bool = False
    gated: bool = True

    def __post_init__(self) -> None:
        update_wrapper(self, self.function)

    def settings(self, name: str, site: str, fits: Sequence[str]) -> Iterator[Candidate]:
        """Yield the settings to begin with, for all steps."""
        for fit, shrinkage in product(self.fits, self.shrinkages):
            candidate = Candidate(site, name, fit, shrinkage)
            if candidate.needs <= set(fits):
                yield candidate

    def __call__(self, evidence: "Evidence", site: str) -> Iterator[tuple[str, SteeringFunction]]:
        """Yield name and function of each setting that the evidence supports."""
        name = next(name for name, method in methods().items() if method is self)
        for candidate in filter(evidence.supports, self.settings(name, site, evidence.fits)):
            yield candidate.name, self.function(candidate, evidence)


@dataclass(eq=False)
class Gating:
    """A gate that is tried before the best candidate: a function of evidence and a site, registered in `CANDIDATES`.

    Attributes
    ----------
    function : callable
        It returns the gate.
    words : str
        What the name of a candidate says of it.
    """

    function: Callable[["Evidence", str], Gate]
    words: str

    def __post_init__(self) -> None:
        update_wrapper(self, self.function)

    def __call__(self, evidence: "Evidence", site: str) -> Gate:
        """Return the gate at ``site``."""
        return self.function(evidence, site)


def methods() -> dict[str, Method]:
    """Return our own methods by name, those of `SPACE` first and in its order."""
    return {name: value for name, value in _own("method") if isinstance(value, Method)}


def gatings() -> dict[str, Gating]:
    """Return the gates by name, those of `SPACE` first and in its order."""
    return {name: value for name, value in _own("scope") if isinstance(value, Gating)}


def space() -> dict[str, list[Any]]:
    """Return `SPACE` with the methods and gates that are registered."""
    return {**SPACE, "method": list(methods()), "scope": ["all", *gatings()]}


def _own(choice: str) -> list[tuple[str, Any]]:
    order = SPACE[choice]
    return sorted(CANDIDATES.own().items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order))


def canonical(candidate: Candidate) -> Candidate:
    """Return the candidate with the values that its method ignores set to one value, so that equal ones are equal."""
    c = candidate
    if c.text:
        return c
    method = methods()[c.method]
    return replace(
        c,
        fit=c.fit if c.fit in method.fits else method.fits[-1],
        shrinkage=c.shrinkage if c.shrinkage in method.shrinkages else method.shrinkages[0],
        damping=c.damping if method.from_gradients else 0.3,
        scope=c.scope if method.gated else "all",
    )


def candidates(sites: Sequence[str], fits: Sequence[str]) -> Iterator[Candidate]:
    """Yield the settings to begin with, for all steps; gates are tried behind the best of them."""
    for site, (name, method) in product(sites, methods().items()):
        yield from method.settings(name, site, fits)
