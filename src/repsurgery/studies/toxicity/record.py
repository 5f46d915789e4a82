"""The record of one toxicity study: the configurations, the examples, and every number that was measured."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from repsurgery.errors import RecordError
from repsurgery.studies.common.checked import Checked, Several, checked, field_validator
from repsurgery.studies.common.estimate import Estimate

__all__ = ["NATS", "WORDS", "WRITING", "Configured", "Example", "ToxicityRecord", "is_published_concept"]

WRITING = "writing, "
"""The keys of ``seconds`` that begin so give the time of one configuration within the step of writing."""

NATS, WORDS = "wikitext_nats", "wikitext_words"
"""The facts that give the negative log-likelihood of each document of WikiText, and its number of words."""


def is_published_concept(spec: Mapping[str, Any]) -> bool:
    """Return whether these options steer away from toxicity; published figures say nothing about other concepts."""
    return bool(spec.get("source", "toxic") == "toxic")


@checked(RecordError, finite=False)
class Configured(Checked):
    """The results of one configuration.

    Attributes
    ----------
    name : str
        The configuration in words, "base" for the unsteered model; unique in its record.
    choices : mapping
        method ("base", "mean", "mimic", "leace", ...), scope ("none", "selective", "all"), fit ("last", "tokens",
        "on-policy"), gate ("nearest-mean", "calibrated", "soft"), shrinkage, alpha, strength, kl, credit, rounds, site,
        rows.
    measures : mapping of str to Estimate
        Per scorer ``s``: "s.expected_max_toxicity", "s.toxicity_probability", "s.mean_toxicity"; "perplexity" of the
        continuations under the first fluency model, "perplexity.m" under a further one ``m``, and in the same way
        "bits_per_character" (not in older records); "distinct.1", "distinct.2", "distinct.3"; without intervals:
        "steered" (share of generated positions that were steered), "kl" (KL(steered ‖ base) on neutral text), "kl.own"
        (KL(base ‖ steered) on the base's own continuations, in nats per token), "wikitext.word_perplexity",
        "wikitext.byte_perplexity".
    differences : mapping of str to Estimate
        Each measure minus that of the base, on the same resampled prompts.
    maxima : mapping of scorer to list of float or None
        The highest toxicity among each prompt's continuations; None where none could be scored, or there is none.
    certificate, held_out : mapping or None
        The certificate on the fitting rows, and the one issued again on held-out texts (`Certificate.to_dict`).
    supported : bool or None
        Whether the held-out rows support the method's claims; None if they are too few or there are none.
    verdict : str or None
        "supported", "contradicted" or "cannot tell" (`Verification`); None in older records.
    facts : mapping
        Further counts: rows fitted, texts without score, generations without tokens, perplexities dropped; "prompts"
        where only the first ones were continued, over which all measures are then taken; "gain", the largest factor by
        which the map stretches a direction; "wikitext_nats" and "wikitext_words" by document. Of a rival: what it
        "needs", its "parts", and the "extra_passes_per_token". "peak_bytes_base": the peak of the base that wrote
        beside the configuration, in the same process.
    cost_per_token : float or None
        The time of a new token relative to the base, which was measured beside it: CPU time, or elapsed time on an
        accelerator. None in older records, and where it was not measured.
    training_seconds : float or None
        CPU time of training what the configuration needs: 0 without trained parts, None if unknown.
    peak_bytes : int or None
        The largest resident memory of the process while the configuration wrote, with everything else that the study
        holds, so that only differences from "peak_bytes_base" compare; on an accelerator, the memory allocated there.
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
    cost_per_token: float | None = None
    training_seconds: float | None = None
    peak_bytes: int | None = None


@checked(RecordError)
class Example(Checked):
    """A prompt and one continuation of it per configuration, all sampled with the same random numbers."""

    prompt: str
    continuations: Mapping[str, str]


@checked(RecordError, finite=False)
class ToxicityRecord(Checked):
    """Everything that a report of a toxicity study needs; no name of a user, a host or a folder.

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
        name, source, licence, digest, count, samples, tokens, toxicity (upper bound of the prompts' own toxicity).
    scorers : mapping of key to mapping
        name, version, digest, and, where archived scores are available, the agreement with them: auc, spearman, texts.
        The first scorer comes first in the tables.
    fluency : mapping
        name of the model whose perplexity is reported, number of prompts; further: the names of further models.
    wikitext : mapping
        name, digest, documents, words, bytes; empty if the perplexity on WikiText-2 was not measured.
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
    configurations: Several[Configured]
    examples: Several[Example] = ()
    notes: Several[str] = ()

    @field_validator("configurations")
    @classmethod
    def _require_base(cls, configurations: tuple[Configured, ...]) -> tuple[Configured, ...]:
        if not configurations or configurations[0].name != "base":
            raise RecordError("the first configuration must be the base.")
        return configurations

    @property
    def model_name(self) -> str:
        """The name of the steered model."""
        return str(self.model["name"])

    def configured(self, name: str) -> Configured | None:
        """Return the results of a configuration, None if it was not run."""
        return next((c for c in self.configurations if c.name == name), None)
