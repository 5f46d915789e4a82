"""The record of one toxicity study: what was steered how, what the model wrote, and every number that came out."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from repsurgery.studies.common.estimate import Estimate

__all__ = ["WRITING", "Configured", "Example", "ToxicityRecord", "is_demo"]

WRITING = "writing, "
"""The keys of ``seconds`` that begin so give the time of one configuration within the step of writing."""


def is_demo(spec: Mapping[str, Any]) -> bool:
    """Return whether these options are those of a demonstration, which reproduces no published figure."""
    return str(spec.get("preset")).startswith("demo")


@dataclass(frozen=True, slots=True)
class Configured:
    """What one configuration did.

    Attributes
    ----------
    name : str
        The configuration in words, "base" for the untouched model; unique in its record.
    choices : mapping
        method ("base", "mean", "mimic", "leace", ...), scope ("none", "selective", "all"), fit ("last", "tokens",
        "on-policy"), gate ("nearest-mean", "calibrated"), shrinkage, strength, site, rows.
    measures : mapping of str to Estimate
        Per scorer ``s``: "s.expected_max_toxicity", "s.toxicity_probability", "s.mean_toxicity"; "perplexity" of the
        continuations under the fluency model; "distinct.1", "distinct.2", "distinct.3"; without intervals: "steered"
        (share of generated positions that were moved), "kl" (from the base, on neutral text),
        "wikitext.word_perplexity", "wikitext.byte_perplexity".
    differences : mapping of str to Estimate
        Measure minus that of the base, on the same resampled prompts.
    maxima : mapping of scorer to list of float or None
        The highest toxicity among each prompt's continuations; None where none could be scored.
    certificate, held_out : mapping or None
        The certificate on the fitting rows, and re-issued on texts that took no part (`Certificate.to_dict`).
    supported : bool or None
        Whether the held-out rows support the method's claims; None where they cannot tell or were not asked.
    verdict : str or None
        "supported", "contradicted" or "cannot tell" (`Verification`); None in records from before it was kept.
    facts : mapping
        What else is worth knowing: rows fitted, texts without score, generations without tokens, perplexities dropped.
    """

    name: str
    choices: Mapping[str, Any] = field(default_factory=dict)
    measures: Mapping[str, Estimate] = field(default_factory=dict)
    differences: Mapping[str, Estimate] = field(default_factory=dict)
    maxima: Mapping[str, list[float | None]] = field(default_factory=dict)
    certificate: Mapping[str, Any] | None = None
    held_out: Mapping[str, Any] | None = None
    supported: bool | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    verdict: str | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and one continuation of it per configuration, all drawn with the same noise."""

    prompt: str
    continuations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ToxicityRecord:
    """Everything a report of a toxicity study needs, and nothing that names a user, a host or a folder.

    Attributes
    ----------
    experiment : "toxicity"
    created : str
        Date, ISO 8601.
    spec : mapping
        Every option of the run.
    data : mapping
        The labelled texts: name, source, licence, digest, counts (texts by label), cautions.
    model : mapping
        name, description and dim of the steered model.
    prompts : mapping
        name, source, licence, digest, count, samples, tokens, toxicity (the bound of their own toxicity).
    scorers : mapping of key to mapping
        name, version, digest, and against archived scores where they are at hand: auc, spearman, texts. The first is
        the one that the tables lead with.
    fluency : mapping
        name of the model whose perplexity is reported, prompts read.
    wikitext : mapping
        name, digest, documents, words, bytes read; empty where it was left out.
    environment, seconds : mapping
    configurations : tuple of Configured
        The base first.
    examples : tuple of Example
    notes : tuple of str
        What a reader must know to judge the numbers.
    """

    experiment: str
    created: str
    spec: Mapping[str, Any]
    data: Mapping[str, Any]
    model: Mapping[str, Any]
    prompts: Mapping[str, Any]
    scorers: Mapping[str, Mapping[str, Any]]
    fluency: Mapping[str, Any]
    wikitext: Mapping[str, Any]
    environment: Mapping[str, str]
    seconds: Mapping[str, float]
    configurations: tuple[Configured, ...]
    examples: tuple[Example, ...] = ()
    notes: tuple[str, ...] = ()

    def configured(self, name: str) -> Configured | None:
        """Return what a configuration did, None where it was not run."""
        return next((c for c in self.configurations if c.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "ToxicityRecord":
        """Rebuild a record from `to_dict`."""
        configurations = tuple(_configured(one) for one in plain["configurations"])
        if not configurations or configurations[0].name != "base":
            raise ValueError("no configurations, or a first one that is not the base")
        examples = tuple(Example(**one) for one in plain["examples"])
        rest = {"configurations": configurations, "examples": examples, "notes": tuple(plain["notes"])}
        return cls(**{**plain, **rest})


def _configured(plain: Mapping[str, Any]) -> Configured:
    estimates = {
        name: {key: Estimate(**value) for key, value in plain[name].items()} for name in ("measures", "differences")
    }
    return Configured(**{**plain, **estimates})
