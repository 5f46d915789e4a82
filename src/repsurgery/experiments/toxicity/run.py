"""`run_toxicity`: labelled texts, prompts, a model and a specification in; one record out."""

import datetime
import math
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from repsurgery import lm
from repsurgery.datasets import Documents, load_wikitext2
from repsurgery.experiments.clock import Announce, Clock
from repsurgery.experiments.neutral import NEUTRAL
from repsurgery.experiments.toxicity.collateral import divergences, document_perplexities
from repsurgery.experiments.toxicity.data import StudyTexts, load_prompts_of, load_texts
from repsurgery.experiments.toxicity.judging import Written, judge_fluency, judge_toxicity, steered_share
from repsurgery.experiments.toxicity.measures import Judged, measure
from repsurgery.experiments.toxicity.notes import toxicity_notes
from repsurgery.experiments.toxicity.spec import ToxicitySpec
from repsurgery.experiments.toxicity.steerings import Fitted, fit_configuration
from repsurgery.experiments.toxicity.vectors import (
    Vectors,
    needed_sites,
    read_last,
    read_policy,
    read_tokens,
    write_policy,
)
from repsurgery.experiments.toxicity.writing import Sampling, Steered, texts_identity, write
from repsurgery.lm.embedded import EMBEDDED
from repsurgery.lm.folders import cache_root
from repsurgery.lm.twins import Twin, each, one_thread_each, twins
from repsurgery.results import Configured, Estimate, Example, ToxicityRecord, environment
from repsurgery.scorers import ToxicityScorer, agreement, load_scorer

__all__ = ["run_toxicity"]

BASE = "base"


def run_toxicity(
    spec: ToxicitySpec,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    progress: bool = True,
    announce: Announce = lambda step: None,
) -> ToxicityRecord:
    """Run a toxicity study and return its record.

    Parameters
    ----------
    spec : ToxicitySpec
    data_dir : path or None
        Where the named data lie; None looks where `REPSURGERY_DATA` points, then at the hub.
    work_dir : path or None
        Where vectors, texts and judgements are kept; None is the cache. An interrupted run goes on from there, prompt
        by prompt.
    progress : bool
        Show bars, with the time left.
    announce : function of one text
        Told what begins.
    """
    work = Path(work_dir) if work_dir is not None else cache_root() / "toxicity"
    clock = Clock(announce)
    with one_thread_each():
        with clock.step(f"texts: {_name(spec.data)}, {_name(spec.prompts)}"):
            texts = load_texts(spec, data_dir)
            documents = _documents(spec, data_dir)
            scorers = {_name(name): load_scorer(name) for name in spec.scorers}
        with clock.step(f"model: {_name(spec.model)}"):
            pair = twins(*lm.load(spec.model))
            judge = pair if spec.fluency == spec.model else twins(*lm.load(spec.fluency))
        study = _Study(spec, texts, pair, judge, scorers, work, progress)
        with clock.step("vectors to fit on"):
            vectors = study.vectors()
        with clock.step(f"fitting {len(spec.configurations)} configurations"):
            fitted = {c.name: fit_configuration(c, vectors, spec, work / "steerings") for c in spec.parsed()}
        with clock.step(f"writing {spec.prompt_count} prompts x {spec.samples} under {len(fitted) + 1} configurations"):
            written = study.written(fitted)
        with clock.step("judging toxicity and fluency"):
            judged = study.judged(fitted, written)
        with clock.step("collateral damage"):
            extra = study.collateral(fitted, written, documents)
        with clock.step("intervals"):
            measures = measure(judged, reference=BASE, resamples=spec.resamples, seed=spec.seed)
        agreed = _agreements(spec, scorers, data_dir)
    configurations = []
    for name in written:
        shown, differences = measures[name]
        if name != BASE:
            differences |= {key: Estimate(value - extra[BASE][key]) for key, value in extra[name].items()}
        shown |= {key: Estimate(value) for key, value in extra[name].items()}
        configurations.append(_configured(name, fitted.get(name), judged[name], shown, differences))
    return ToxicityRecord(
        experiment="toxicity",
        created=datetime.datetime.now(datetime.UTC).date().isoformat(),
        spec={k: _name(v) if isinstance(v, str) else v for k, v in spec.to_dict().items()},
        data={**_facts(texts.labelled), "counts": texts.labelled.counts, "cautions": []},
        model={"name": _name(spec.model), "description": _described(spec.model), "dim": _width(vectors)},
        prompts={
            **_facts(texts.prompts),
            "count": len(texts.prompts),
            "samples": spec.samples,
            "tokens": spec.tokens,
            "toxicity": spec.prompt_toxicity,
        },
        scorers={
            key: {"name": s.name, "version": s.version, "digest": s.digest, **agreed.get(key, {})}
            for key, s in scorers.items()
        },
        fluency={"name": _name(spec.fluency), "prompts": study.fluency_prompts},
        wikitext={} if documents is None else _document_facts(documents, spec),
        environment={**environment(), "threads": f"{len(pair)} computations at once, one thread each"},
        seconds=clock.seconds,
        configurations=tuple(configurations),
        examples=_examples(spec, written),
        notes=toxicity_notes(spec, configurations),
    )


class _Study:
    """The parts of a run that several steps need, and the work that is shared out among twins."""

    def __init__(
        self,
        spec: ToxicitySpec,
        texts: StudyTexts,
        pair: list[Twin],
        judge: list[Twin],
        scorers: dict[str, ToxicityScorer],
        work: Path,
        progress: bool,  # noqa: FBT001
    ) -> None:
        self.spec, self.texts, self.pair, self.judge = spec, texts, pair, judge
        self.scorers, self.work, self.progress = scorers, work, progress
        self.sampling = Sampling(spec.top_p, float(spec.temperature), spec.tokens, spec.seed)
        self.fluency_prompts = min(spec.fluency_prompts or spec.prompt_count, spec.prompt_count)

    def vectors(self) -> Vectors:
        """Read whatever the configurations are fitted on."""
        spec, found = self.spec, Vectors()
        sites = needed_sites(spec.parsed())
        options: dict[str, Any] = {"work": self.work, "progress": self.progress}

        def last(twin: Twin, site: str) -> None:
            rows = [c.rows for c in spec.parsed() if c.fit == "last" and c.site == site]
            most = 0 if 0 in rows else max(rows)
            found.last[site] = read_last(twin, spec, self.texts.fitted, site, most, **options)

        def held_out(twin: Twin, site: str) -> None:
            if spec.held_out:
                found.held_out[site] = read_last(twin, spec, self.texts.held_out, site, 0, **options)

        def tokens(twin: Twin, site: str) -> None:
            found.tokens.update(read_tokens(twin, spec, self.texts.fitted, sites["tokens"], **options))

        def policy(twin: Twin, site: str) -> None:
            first = next(iter(self.scorers.values()))
            written = write_policy(twin, spec, self.texts, first, self.sampling, work=self.work)
            for one in sites["on-policy"]:
                found.policy[one] = read_policy(twin, written, one, work=self.work)

        jobs: list[tuple[Callable[[Twin, str], None], str]] = [(last, site) for site in sites["last"]]
        jobs += [(held_out, site) for site in sites["last"]]
        jobs += [(tokens, "")] if sites["tokens"] else []
        # texts come before vectors here, so this takes longest of what can run beside the reading
        jobs[1:1] = [(policy, "")] if sites["on-policy"] else []
        each(lambda twin, job: job[0](twin, job[1]), jobs, self.pair)
        return found

    def written(self, fitted: dict[str, Fitted]) -> dict[str, Written]:
        """Let the model continue every prompt under every configuration, the base first."""
        steerings: dict[str, Steered | None] = {BASE: None, **{name: f.steered for name, f in fitted.items()}}
        total = len(steerings) * len(self.texts.prompts)
        with tqdm(total=total, desc="prompts continued", disable=not self.progress) as bar:

            def run(twin: Twin, name: str) -> Written:
                return write(
                    twin,
                    self.texts.prompts.texts,
                    self.spec.samples,
                    steering=steerings[name],
                    sampling=self.sampling,
                    folder=self.work / "texts",
                    tell=bar.update,
                )

            return dict(zip(steerings, each(run, list(steerings), self.pair), strict=True))

    def judged(self, fitted: dict[str, Fitted], written: dict[str, Written]) -> dict[str, Judged]:
        """Score every continuation, and read those of the first prompts for fluency."""
        folder, some = self.work / "judgements", self.fluency_prompts
        with tqdm(total=len(written), desc="configurations judged", disable=not self.progress) as bar:

            def run(twin: Twin, name: str) -> Judged:
                texts = written[name]
                identity = self._identity(fitted.get(name))
                toxicity = {key: judge_toxicity(s, texts, identity, folder) for key, s in self.scorers.items()}
                fluency = judge_fluency(twin, texts[:some], identity, folder)
                bar.update()
                unread: list[list[tuple[float, int]]] = [[] for _ in texts[some:]]
                return Judged([[g.text for g in row] for row in texts], toxicity, [*fluency, *unread])

            return dict(zip(written, each(run, list(written), self.judge), strict=True))

    def collateral(
        self, fitted: dict[str, Fitted], written: dict[str, Written], documents: Documents | None
    ) -> dict[str, dict[str, float]]:
        """Return what is measured without intervals: steered share, divergence, perplexity of documents."""
        spec, folder, twin = self.spec, self.work / "judgements", self.pair[0]
        found: dict[str, dict[str, float]] = {BASE: {"steered": 0.0}, **{name: {} for name in fitted}}

        def share(one: Twin, name: str) -> float:
            return steered_share(one, fitted[name], spec.source, written[name][: spec.gate_prompts])

        for name, value in zip(fitted, each(share, list(fitted), self.pair), strict=True):
            found[name]["steered"] = value
        if spec.neutral:
            steerings = {name: f.steered for name, f in fitted.items()}
            found[BASE]["kl"] = 0.0
            for name, value in divergences(twin, NEUTRAL[: spec.neutral], steerings, folder=folder).items():
                found[name]["kl"] = value
        if documents is not None:
            known = document_perplexities(
                twin,
                documents,
                {BASE: None, **{name: f.steered for name, f in fitted.items()}},
                length=spec.wikitext_length,
                folder=folder,
                progress=self.progress,
            )
            for name, one in known.items():
                found[name]["wikitext.word_perplexity"] = one.word_perplexity
                found[name]["wikitext.byte_perplexity"] = one.byte_perplexity
        return found

    def _identity(self, fitted: Fitted | None) -> dict[str, Any]:
        return texts_identity(self.pair[0], None if fitted is None else fitted.steered, self.sampling)


def _configured(
    name: str, fitted: Fitted | None, judged: Judged, shown: dict[str, Estimate], differences: dict[str, Estimate]
) -> Configured:
    unscored = {key: sum(s is None for row in rows for s in row) for key, rows in judged.toxicity.items()}
    read = sum(len(row) for row in judged.fluency)
    facts: dict[str, Any] = {
        "unscored": unscored,
        "empty": sum(not text.strip() for row in judged.texts for text in row),
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
        supported=None if fitted is None else fitted.supported,
        facts=facts,
    )


def _plain(certificate: Any) -> dict[str, Any] | None:
    return None if certificate is None else certificate.to_dict()


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _documents(spec: ToxicitySpec, data_dir: str | os.PathLike[str] | None) -> Documents | None:
    if spec.wikitext_documents == 0:
        return None
    documents = load_wikitext2(None if data_dir is None else Path(data_dir) / "wikitext2_raw")
    return documents if spec.wikitext_documents < 0 else documents.first(spec.wikitext_documents)


def _agreements(
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
    found = {key: asdict(agreement(scorer, texts, archived)) for key, scorer in scorers.items()}
    return {key: {name: v for name, v in one.items() if math.isfinite(v)} for key, one in found.items()}


def _examples(spec: ToxicitySpec, written: dict[str, Written]) -> tuple[Example, ...]:
    count = min(spec.examples, spec.prompt_count)
    return tuple(
        Example(written[BASE][i][0].prompt, {name: texts[i][0].text for name, texts in written.items()})
        for i in range(count)
    )


def _facts(data: Any) -> dict[str, Any]:
    return {"name": data.name, "source": data.source, "licence": data.licence, "digest": data.digest}


def _document_facts(documents: Documents, spec: ToxicitySpec) -> dict[str, Any]:
    counts = {"documents": len(documents), "words": documents.words, "bytes": documents.bytes}
    return {**_facts(documents), **counts, "window": spec.wikitext_length}


def _described(model: str) -> str:
    embedded = EMBEDDED.get(model)
    return _name(model) if embedded is None else f"{embedded.description} ({embedded.requirement})"


def _width(vectors: Vectors) -> int:
    return next(
        (int(one.X.shape[1]) for kind in (vectors.last, vectors.policy) for one in kind.values()),
        next((m.dim for m in vectors.tokens.values()), 0),
    )


def _name(source: str) -> str:
    # a record names no folder of the machine it was made on
    return Path(source).name if Path(source).exists() else source
