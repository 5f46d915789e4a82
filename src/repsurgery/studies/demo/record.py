"""The record of one demonstration: what was steered, how, and what came out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from repsurgery.arrays import Labels, Matrix
from repsurgery.certificates import Certificate
from repsurgery.certificates.verify import Verdict

__all__ = ["CertifiedMap", "Cloud", "DemoRecord", "Outcome", "Scope"]

Scope = Literal["none", "selective", "all"]
"""Which vectors are steered: none, those the gate picks, every one."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a model wrote under one configuration, and the measures of it.

    Attributes
    ----------
    method : str
        "base", or the estimator's name.
    scope : Scope
    continuations : per prompt, a tuple of texts
    expected_max_toxicity, toxicity_probability, mean_toxicity : float
        By the record's scorer.
    perplexity : float
        Of the sampled tokens after their prompt, under the unsteered model.
    dropped : int
        Generations without tokens or with a perplexity of 10,000 and more, which the mean leaves out.
    distinct : (distinct-1, distinct-2, distinct-3)
    kl : float
        Mean KL(steered ‖ base) per token of neutral text, in nats.
    read_as_source : float
        Share of generating positions whose state, before steering, the gate takes for the source.
    steered : float
        Share of generating positions that were steered.
    """

    method: str
    scope: Scope
    continuations: tuple[tuple[str, ...], ...]
    expected_max_toxicity: float
    toxicity_probability: float
    mean_toxicity: float
    perplexity: float
    dropped: int
    distinct: tuple[float, float, float]
    kl: float
    read_as_source: float
    steered: float

    @property
    def name(self) -> str:
        """The configuration in words."""
        return self.method if self.scope == "none" else f"{self.method}, {self.scope}"


@dataclass(frozen=True, slots=True)
class CertifiedMap:
    """A configuration's certificate on the rows of the fit, and re-issued on rows that took no part in it.

    Attributes
    ----------
    verdict : {"supported", "contradicted", "cannot tell"}
        What the held-out rows say of the method's claims; see `Verification`.
    """

    method: str
    scope: Scope
    fitted: Certificate
    held_out: Certificate
    verdict: Verdict

    @property
    def supported(self) -> bool:
        """Whether the held-out rows support the claims."""
        return self.verdict == "supported"


@dataclass(frozen=True, slots=True, eq=False)
class Cloud:
    """Rows seen in two directions.

    Attributes
    ----------
    title : str
    points : (n, 2) array
        Along the difference of the class means, and along the first principal component of the rest.
    labels : (n,) labels
    """

    title: str
    points: Matrix
    labels: Labels


@dataclass(frozen=True, slots=True, eq=False)
class DemoRecord:
    """Everything a report of the demonstration needs.

    Attributes
    ----------
    model, corpus, scorer : str
        Each with version or digest.
    source, target : str
        The class that is steered and the one it is steered to.
    settings, environment, seconds : mapping
        What was chosen, where it ran, and how long each step took.
    prompts : tuple of str
    outcomes : tuple of Outcome
        The base first.
    certificates : tuple of CertifiedMap
    clouds : tuple of Cloud
        Held-out rows, before and after steering.
    notes : tuple of str
        What a reader must know to judge the numbers.
    """

    model: str
    corpus: str
    scorer: str
    source: str
    target: str
    settings: Mapping[str, str]
    environment: Mapping[str, str]
    seconds: Mapping[str, float]
    prompts: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    certificates: tuple[CertifiedMap, ...]
    clouds: tuple[Cloud, ...]
    notes: tuple[str, ...]
