"""The part of a record that describes each configuration, and the texts, models and scorers of the run."""

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
from repsurgery.studies.toxicity.cost import Spent
from repsurgery.studies.toxicity.data import load_prompts_of
from repsurgery.studies.toxicity.generators import GENERATORS, GeneratorLine
from repsurgery.studies.toxicity.measures import Judged, Measured, Scores, by_judge
from repsurgery.studies.toxicity.record import NATS, WORDS, WRITING, Configured, Example
from repsurgery.studies.toxicity.spec import ToxicitySpec
from repsurgery.studies.toxicity.steerings import Fitted
from repsurgery.studies.toxicity.study import BASE
from repsurgery.studies.toxicity.writing import Written

__all__ = [
    "agreements",
    "configured",
    "document_facts",
    "examples",
    "fluency_facts",
    "model_facts",
    "source_facts",
    "writing_seconds",
]


def configured(
    spec: ToxicitySpec,
    judged: Mapping[str, Judged],
    fitted: Mapping[str, Fitted],
    measured: Mapping[str, Measured],
    extra: Mapping[str, Mapping[str, float]],
    nats: Mapping[str, Sequence[float]],
    words: Sequence[int],
    written: Mapping[str, Written],
    spent: Mapping[str, Spent],
) -> tuple[Configured, ...]:
    """Return the record of each configuration, the base first; the measures in ``extra`` have no intervals.

    ``nats`` are those of each document of WikiText, which has so many ``words``.
    """
    rivals = {line.name: line for line in spec.lines() if isinstance(line, GeneratorLine)}
    prompts = len(judged[BASE].texts)
    rows = []
    for name, one in judged.items():
        measures, differences = measured[name]
        if name != BASE:
            differences |= _finite({key: value - extra[BASE][key] for key, value in extra[name].items()})
        measures |= _finite(extra[name])
        fit, facts = fitted.get(name), _facts(one, written[name])
        choices: dict[str, Any] = {"method": BASE, "scope": "none"}
        if fit is not None:
            choices, facts = fit.configuration.choices, {**facts, **fit.facts}
        if name in rivals:
            choices = {"method": rivals[name].generator, **rivals[name].options}
            facts |= _rival_facts(rivals[name], written[name], spent[name])
        if spent[name].peak_bytes_base is not None:
            facts["peak_bytes_base"] = spent[name].peak_bytes_base
        if name in nats and all(map(math.isfinite, nats[name])):
            facts |= {NATS: [round(value, 4) for value in nats[name]], WORDS: list(words)}
        if len(one.texts) < prompts:
            facts["prompts"] = len(one.texts)
        absent = [None] * (prompts - len(one.texts))
        rows.append(
            Configured(
                name=name,
                choices=choices,
                measures=measures,
                differences=differences,
                maxima={key: [*map(_rounded, one.maxima(key)), *absent] for key in one.toxicity},
                certificate=_plain(fit and fit.certificate),
                held_out=_plain(fit and fit.held_out),
                supported=None if fit is None else as_support(fit.verdict),
                facts=facts,
                verdict=None if fit is None else fit.verdict,
                cost_per_token=spent[name].cost_per_token,
                training_seconds=spent[name].training_seconds,
                peak_bytes=spent[name].peak_bytes,
            )
        )
    return tuple(rows)


def _finite(values: Mapping[str, float]) -> dict[str, Estimate]:
    # an infinite perplexity is left out, like every measure without a value
    return {key: Estimate(value) for key, value in values.items() if math.isfinite(value)}


def _facts(judged: Judged, written: Written) -> dict[str, Any]:
    blanks = sum(not text.strip() for row in judged.texts for text in row)
    dropped = {
        key: sum(len(row) for row in judged.fluency[judge]) - sum(map(len, judged.perplexities(judge)))
        for judge, key in by_judge("perplexities_dropped", list(judged.fluency)).items()
    }
    facts: dict[str, Any] = {
        "unscored": {key: _unscored(rows) - blanks for key, rows in judged.toxicity.items()},
        "empty": blanks,
        **dropped,
    }
    if written.cost is not None:
        cost = asdict(written.cost)
        # seconds depend on the machine and belong to the circumstances; see `writing_seconds`
        facts["cost_per_continuation"] = {name: cost[name] for name in cost if name != "seconds"}
    return facts


def _rival_facts(line: GeneratorLine, written: Written, spent: Spent) -> dict[str, Any]:
    needs, cost = GENERATORS[line.generator].needs, written.cost
    facts: dict[str, Any] = {"needs": needs} if needs else {}
    if cost is not None and cost.tokens_written:
        facts["extra_passes_per_token"] = round(cost.extra_passes / cost.tokens_written, 4)
    return {**facts, **({"parts": dict(spent.parts)} if spent.parts else {})}


def _unscored(rows: Scores) -> int:
    return sum(score is None for row in rows for score in row)


def writing_seconds(written: Mapping[str, Written]) -> dict[str, float]:
    """Return the seconds that each configuration took to write, where they are known."""
    return {
        WRITING + name: round(one.cost.seconds * sum(map(len, one.rows)), 1)
        for name, one in written.items()
        if one.cost is not None
    }


def _plain(certificate: Any) -> dict[str, Any] | None:
    return None if certificate is None else certificate.to_dict()


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def agreements(
    spec: ToxicitySpec, scorers: dict[str, ToxicityScorer], data_dir: str | os.PathLike[str] | None
) -> dict[str, dict[str, Any]]:
    """Return how each scorer agrees with the archived scores of the prompts, where there are any."""
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
        figures = asdict(agreement(scorer, texts, archived))
    except DataError:
        return {}  # a scorer that has a score for none of these texts, such as a replay of others
    return {name: value for name, value in figures.items() if math.isfinite(value)}


def examples(spec: ToxicitySpec, written: Mapping[str, Written]) -> tuple[Example, ...]:
    """Return the first continuation of the first prompts under each configuration."""
    count = min(spec.examples, spec.prompt_count)
    return tuple(
        Example(
            written[BASE].rows[i][0].prompt,
            {name: texts.rows[i][0].text for name, texts in written.items() if i < len(texts.rows)},
        )
        for i in range(count)
    )


def source_facts(data: Any) -> dict[str, Any]:
    """Return what identifies texts, prompts or documents."""
    return {"name": data.name, "source": data.source, "licence": data.licence, "digest": data.digest}


def document_facts(documents: Documents | None, spec: ToxicitySpec) -> dict[str, Any]:
    """Return which documents were read, and how much of them; nothing where they were left out."""
    if documents is None:
        return {}
    counts = {"documents": len(documents), "words": documents.words, "bytes": documents.bytes}
    return {**source_facts(documents), **counts, "window": spec.wikitext_length}


def fluency_facts(spec: ToxicitySpec, prompts: int) -> dict[str, Any]:
    """Return the models that judged fluency, and of how many prompts they read the continuations."""
    name, *further = map(plain_name, spec.judges)
    return {"name": name, "prompts": prompts, **({"further": further} if further else {})}


def model_facts(spec: ToxicitySpec, fitted: Mapping[str, Fitted]) -> dict[str, Any]:
    """Return the name and description of the steered model, and the dimension of the steered vectors."""
    embedded, name = EMBEDDED.get(spec.model), plain_name(spec.model)
    described = name if embedded is None else f"{embedded.description} ({embedded.requirement})"
    return {
        "name": name,
        "description": described,
        "dim": max((f.steering.function.dim for f in fitted.values()), default=0),
    }
