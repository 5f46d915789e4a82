"""Candidates: the settings among which a search chooses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

__all__ = ["METHODS_OF_PAPER", "SPACE", "Candidate", "candidates", "canonical"]

Method = Literal["mean", "mimic", "leace", "natural", "natural-mean", "blend"]
Fit = Literal["texts", "on-policy", "steps"]
Scope = Literal["all", "gate", "soft"]

SPACE: dict[str, list[Any]] = {
    "method": ["mean", "mimic", "leace", "natural", "natural-mean", "blend"],
    "fit": ["texts", "on-policy", "steps"],
    "shrinkage": ["none", "pooled", "pooled 0.5", "pooled 0.8"],
    "scope": ["all", "gate", "soft"],
    "damping": [0.1, 0.3, 1.0],
}
"""The values of every choice besides the site, which depends on the model."""
METHODS_OF_PAPER: tuple[Method, ...] = ("mean", "mimic", "leace")
"""Mean matching, MiMiC and LEACE."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One setting.

    Attributes
    ----------
    site : str
    method : {"mean", "mimic", "leace", "natural", "natural-mean", "blend"}
        "natural" is the shift with the greatest first-order effect per nat: on texts, the effect on the log-likelihood
        of target texts less that of source texts; otherwise on the score of the model's own texts, with credit for each
        step. "natural-mean" adds the difference of the means at an equal price. "blend" is the sum of "natural-mean" on
        texts and "natural" on the model's own texts, at equal prices.
    fit : {"texts", "on-policy", "steps"}
        What means and covariances are fitted on: every token of the labelled texts; every step of the model's own
        texts, labelled by the score of the text; or the same steps, each labelled by its own credit.
    shrinkage : {"none", "pooled", "pooled 0.5", "pooled 0.8"}
        Of MiMiC; "pooled" chooses its alpha itself.
    scope : {"all", "gate", "soft"}
        Which steps are steered: all, those that a gate assigns to the source, or each as strongly as the gate says.
    damping : float
        Of the natural shift.
    price : float
        The share of the budget that it may cost.
    """

    site: str
    method: Method
    fit: Fit
    shrinkage: str = "none"
    scope: Scope = "all"
    damping: float = 0.3
    price: float = 1.0

    @property
    def name(self) -> str:
        """All that distinguishes it from other candidates, in words."""
        plain = canonical(self)
        extras = [
            *([f"shrinkage {plain.shrinkage}"] if plain.method == "mimic" else []),
            *([f"damping {plain.damping:g}"] if plain.is_natural and plain.damping != 0.3 else []),
            *([] if plain.scope == "all" else [{"gate": "gated", "soft": "softly gated"}[plain.scope]]),
            *([] if plain.price == 1 else [f"{plain.price:.3g} {'times' if plain.price > 1 else 'of'} the price"]),
        ]
        return ", ".join([f"{plain.method} on {plain.fit} at {plain.site}", *extras])

    @property
    def is_natural(self) -> bool:
        """Whether it needs gradients."""
        return self.method in ("natural", "natural-mean", "blend")

    @property
    def needs(self) -> tuple[Fit, ...]:
        """The fits whose data it needs."""
        return ("texts", "on-policy") if self.method == "blend" else (self.fit,)


def canonical(candidate: Candidate) -> Candidate:
    """Return the candidate with the values that its method ignores set to one value, so that equal ones are equal."""
    c = candidate
    return replace(
        c,
        fit=_fit(c),
        # without any shrinkage the covariances of states of texts are singular
        shrinkage="none" if c.method != "mimic" else "pooled" if c.shrinkage == "none" else c.shrinkage,
        damping=c.damping if c.is_natural else 0.3,
        # LEACE is one map for every class, and a gate would take its guarantee away
        scope="all" if c.method == "leace" else c.scope,
    )


def _fit(c: Candidate) -> Fit:
    if c.method == "blend":
        return "texts"
    return "on-policy" if c.method == "natural" and c.fit == "steps" else c.fit


def candidates(sites: Sequence[str], fits: Sequence[Fit]) -> Iterator[Candidate]:
    """Yield the settings to begin with, for all steps; gates are tried behind the best of them."""
    seen = set()
    shrinkages = {"mimic": ("pooled", "pooled 0.5", "pooled 0.8")}
    for site, method, fit in product(sites, SPACE["method"], fits):
        for shrinkage in shrinkages.get(method, ("none",)):
            one = canonical(Candidate(site, method, fit, shrinkage))
            if one not in seen and set(one.needs) <= set(fits):
                seen.add(one)
                yield one
