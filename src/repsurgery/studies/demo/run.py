"""The demonstration: a real model, rude against courteous sentences, three methods, and what each does."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from repsurgery import lm
from repsurgery.arrays import Rows
from repsurgery.datasets import LabelledTexts, load_courtesy, load_prompts
from repsurgery.errors import DataError
from repsurgery.lm.load.models import DEFAULT_MODEL
from repsurgery.lm.load.wheel import EMBEDDED
from repsurgery.lm.twins import Twin, each, one_thread_each, twins
from repsurgery.scorers import LinearScorer, ToxicityScorer
from repsurgery.studies.common.clock import Announce, Clock
from repsurgery.studies.common.environment import environment
from repsurgery.studies.common.neutral import NEUTRAL
from repsurgery.studies.demo.evaluation import Bench, evaluate
from repsurgery.studies.demo.notes import notes
from repsurgery.studies.demo.record import DemoRecord, Outcome, Scope
from repsurgery.studies.demo.scale import FULL, Scale
from repsurgery.studies.demo.steerings import Fitted, Split, clouds, fit_all

__all__ = ["Subject", "run_demo"]


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """What is demonstrated on: texts of two classes, prompts to continue, neutral texts and a scorer."""

    corpus: LabelledTexts = field(default_factory=load_courtesy)
    source: str = "rude"
    target: str = "courteous"
    prompts: tuple[str, ...] = field(default_factory=load_prompts)
    neutral: tuple[str, ...] = NEUTRAL
    scorer: ToxicityScorer = field(default_factory=LinearScorer)


def run_demo(
    *,
    model: str = DEFAULT_MODEL,
    subject: Subject | None = None,
    scale: Scale = FULL,
    site: str = "final",
    seed: int = 0,
    progress: bool = True,
    announce: Announce = lambda step: None,
) -> DemoRecord:
    """Fit on some texts, certify on others, generate under every configuration, and measure.

    Parameters
    ----------
    model : str
        See `lm.load`.
    subject : Subject or None
        None: the embedded corpus, rude to courteous.
    scale : Scale
    site : str
        See `lm.resolve_site`.
    seed : int
        Of the split into fitted and held-out texts and of the sampling.
    progress : bool
        Show a bar for every long step.
    announce : function of one text
        Told what begins.
    """
    clock = Clock(announce)
    with one_thread_each():
        with clock.step(f"Loading {model} (converted once, on first use)"):
            subject = subject or Subject()
            pair = twins(*lm.load(model))
        with clock.step(f"Reading {2 * (scale.fitted + scale.held_out)} texts at site {site!r}"):
            split = _read(pair, subject, scale, site, seed, progress=progress)
        with clock.step("Fitting and certifying three methods"):
            fitted = fit_all(split, subject.source, subject.target)
            seen = clouds(split, fitted, subject.source, subject.target)
        bench = Bench(
            site=site,
            source=subject.source,
            gate=fitted[0].steering.gate,
            scorer=subject.scorer,
            prompts=subject.prompts[: scale.prompts],
            neutral=subject.neutral[: scale.neutral],
            scale=scale,
            seed=seed,
            progress=progress,
        )
        with clock.step(f"Generating under {len(fitted) + 1} configurations, {len(pair)} at a time"):
            outcomes = _outcomes(bench, pair, fitted, announce)
    return DemoRecord(
        model=_model_name(model),
        corpus=f"{subject.corpus.name} ({subject.corpus.source}), SHA-256 {subject.corpus.digest}",
        scorer=f"{subject.scorer.name} {subject.scorer.version}, SHA-256 {subject.scorer.digest}",
        source=subject.source,
        target=subject.target,
        settings={"site": site, "pooling": "last", "seed": str(seed), **{k: str(v) for k, v in asdict(scale).items()}},
        environment={**environment(), "threads": f"{len(pair)} computations at once, one thread each"},
        seconds=clock.seconds,
        prompts=bench.prompts,
        outcomes=outcomes,
        certificates=tuple(f.certified for f in fitted if f.certified is not None),
        clouds=tuple(seen),
        notes=notes(split, subject.source, fitted),
    )


def _outcomes(bench: Bench, pair: list[Twin], fitted: list[Fitted], announce: Announce) -> tuple[Outcome, ...]:
    configurations: list[tuple[str, Scope, Any]] = [("base", "none", None)]
    configurations += [(f.method, f.scope, f.steering) for f in fitted]

    def run(twin: Twin, number: int) -> Outcome:
        method, scope, steering = configurations[number]
        announce(f"{number + 1}/{len(configurations)} {method}" + (f", {scope}" if steering is not None else ""))
        return evaluate(bench, twin, method, scope, steering)

    return tuple(each(run, range(len(configurations)), pair))


def _read(pair: list[Twin], subject: Subject, scale: Scale, site: str, seed: int, *, progress: bool) -> Split:
    labels = np.array(subject.corpus.labels)
    rng = np.random.default_rng(seed)
    fitted, held = [], []
    for label in (subject.source, subject.target):
        rows = rng.permutation(np.flatnonzero(labels == label)).tolist()
        if len(rows) < scale.fitted + scale.held_out:
            raise DataError(
                f"{subject.corpus.name} has {len(rows)} texts of {label!r}; {scale.fitted} to fit and "
                f"{scale.held_out} to hold out are asked for. Choose a smaller scale."
            )
        fitted += rows[: scale.fitted]
        held += rows[scale.fitted : scale.fitted + scale.held_out]
    chosen = [*fitted, *held]

    def read(twin: Twin, part: list[int]) -> Rows:
        return lm.extract(
            twin.model, twin.tokenizer, [subject.corpus.texts[i] for i in part], site=site, progress=progress
        )

    cuts = np.array_split(np.array(chosen), len(pair))
    X = np.concatenate(each(read, [cut.tolist() for cut in cuts], pair))
    n = len(fitted)
    return Split(X[:n], labels[fitted], X[n:], labels[held])


def _model_name(model: str) -> str:
    embedded = EMBEDDED.get(model)
    return model if embedded is None else f"{embedded.description} ({embedded.requirement})"
