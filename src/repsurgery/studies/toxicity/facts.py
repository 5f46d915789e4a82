"""What a record says of each configuration, and of what took part in the run."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from repsurgery.certificates.verify import as_support
from repsurgery.datasets import Documents
from repsurgery.errors import DataError
from repsurgery.lm.load.wheel import EMBEDDED
from repsurgery.scorers import ToxicityScorer, agreement
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.naming import plain_name
from repsurgery.studies.toxicity.data import load_prompts_of
from repsurgery.studies.toxicity.judging import Written
from repsurgery.studies.toxicity.measures import Judged, Measured
from repsurgery.studies.toxicity.record import Configured, Example
from repsurgery.studies.toxicity.spec import ToxicitySpec
from repsurgery.studies.toxicity.steerings import Fitted
from repsurgery.studies.toxicity.study import BASE

__all__ = ["agreements", "configured", "document_facts", "examples", "model_facts", "source_facts"]


def configured(
    judged: Mapping[str, Judged],
    fitted: Mapping[str, Fitted],
    measured: Mapping[str, Measured],
    extra: Mapping[str, Mapping[str, float]],
) -> tuple[Configured, ...]:
    """Return what the record says of each configuration, the base first; ``extra`` comes without intervals."""
    found = []
    for name, one in judged.items():
        shown, differences = measured[name]
        if name != BASE:
            differences |= _finite({key: value - extra[BASE][key] for key, value in extra[name].items()})
        shown |= _finite(extra[name])
        found.append(_configured(name, fitted.get(name), one, shown, differences))
    return tuple(found)


def _finite(values: Mapping[str, float]) -> dict[str, Estimate]:
    # a perplexity beyond every number is left out, as a measure without value is
    return {key: Estimate(value) for key, value in values.items() if math.isfinite(value)}


def _configured(
    name: str, fitted: Fitted | None, judged: Judged, shown: dict[str, Estimate], differences: dict[str, Estimate]
) -> Configured:
    blanks = sum(not text.strip() for row in judged.texts for text in row)
    unscored = {key: sum(s is None for row in rows for s in row) - blanks for key, rows in judged.toxicity.items()}
    read = sum(len(row) for row in judged.fluency)
    facts: dict[str, Any] = {
        "unscored": unscored,
        "empty": blanks,
        "perplexities_dropped": read - sum(map(len, judged.perplexities())),
    }
    choices: dict[str, Any] = {"method": BASE, "scope": "none"}
    if fitted is not None:
        facts |= fitted.facts
        choices = asdict(fitted.configuration)
    return Configured(
        name=name,
        choices=choices,
        measures=shown,
        differences=differences,
        maxima={key: [_rounded(m) for m in judged.maxima(key)] for key in judged.toxicity},
        certificate=_plain(fitted and fitted.certificate),
        held_out=_plain(fitted and fitted.held_out),
        supported=None if fitted is None else as_support(fitted.verdict),
        facts=facts,
        verdict=None if fitted is None else fitted.verdict,
    )


def _plain(certificate: Any) -> dict[str, Any] | None:
    return None if certificate is None else certificate.to_dict()


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def agreements(
    spec: ToxicitySpec, scorers: dict[str, ToxicityScorer], data_dir: str | os.PathLike[str] | None
) -> dict[str, dict[str, Any]]:
    """Return how each scorer compares with the archived scores that came with the prompts, where there are any."""
    every = load_prompts_of(spec, data_dir)
    pairs: list[tuple[str | None, float | None]] = list(zip(every.texts, every.toxicity, strict=True))
    pairs += zip(every.continuations, every.continuation_toxicity, strict=True)
    known = [(text, score) for text, score in pairs if text and score is not None]
    if len({score >= 0.5 for _, score in known}) < 2:
        return {}
    texts, archived = zip(*known, strict=True)
    return {key: _agreement(scorer, texts, archived) for key, scorer in scorers.items()}


def _agreement(scorer: ToxicityScorer, texts: Sequence[str], archived: Sequence[float]) -> dict[str, Any]:
    try:
        found = asdict(agreement(scorer, texts, archived))
    except DataError:
        return {}  # a scorer that knows none of these texts, such as a replay of others
    return {name: value for name, value in found.items() if math.isfinite(value)}


def examples(spec: ToxicitySpec, written: Mapping[str, Written]) -> tuple[Example, ...]:
    """Return the first continuation of the first prompts under each configuration."""
    count = min(spec.examples, spec.prompt_count)
    return tuple(
        Example(written[BASE][i][0].prompt, {name: texts[i][0].text for name, texts in written.items()})
        for i in range(count)
    )


def source_facts(data: Any) -> dict[str, Any]:
    """Return what identifies texts, prompts or documents."""
    return {"name": data.name, "source": data.source, "licence": data.licence, "digest": data.digest}


def document_facts(documents: Documents | None, spec: ToxicitySpec) -> dict[str, Any]:
    """Return what was read of which documents; nothing where they were left out."""
    if documents is None:
        return {}
    counts = {"documents": len(documents), "words": documents.words, "bytes": documents.bytes}
    return {**source_facts(documents), **counts, "window": spec.wikitext_length}


def model_facts(spec: ToxicitySpec, fitted: Mapping[str, Fitted]) -> dict[str, Any]:
    """Return what the steered model is called, and the dimension of what was steered."""
    embedded, name = EMBEDDED.get(spec.model), plain_name(spec.model)
    described = name if embedded is None else f"{embedded.description} ({embedded.requirement})"
    return {
        "name": name,
        "description": described,
        "dim": max((f.steered.function.dim for f in fitted.values()), default=0),
    }
