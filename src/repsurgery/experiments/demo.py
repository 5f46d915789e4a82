"""The demonstration: a real model, rude against courteous sentences, three methods, and what each does."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from repsurgery import lm
from repsurgery.datasets import LabelledTexts, load_courtesy, load_prompts
from repsurgery.errors import DataError
from repsurgery.experiments.evaluation import Bench, evaluate
from repsurgery.experiments.neutral import NEUTRAL
from repsurgery.experiments.scale import FULL, Scale
from repsurgery.experiments.steerings import Fitted, Split, clouds, fit_all
from repsurgery.lm.embedded import EMBEDDED
from repsurgery.results import DemoRecord, Outcome, environment
from repsurgery.scorers import LinearScorer, ToxicityScorer

__all__ = ["Subject", "run_demo"]

Announce = Callable[[str], None]


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
    model: str = lm.models.DEFAULT_MODEL,
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
    clock = _Clock(announce)
    with _one_thread():
        with clock.step(f"Loading {model} (converted once, on first use)"):
            subject = subject or Subject()
            network, tokenizer = lm.load(model)
        with clock.step(f"Reading {2 * (scale.fitted + scale.held_out)} texts at site {site!r}"):
            split = _read(network, tokenizer, subject, scale, site, seed, progress=progress)
        with clock.step("Fitting and certifying three methods"):
            fitted = fit_all(split, subject.source, subject.target)
            seen = clouds(split, fitted, subject.source, subject.target)
        bench = Bench(
            model=network,
            tokenizer=tokenizer,
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
        outcomes = _outcomes(bench, fitted, clock)
    return DemoRecord(
        model=_model_name(model),
        corpus=f"{subject.corpus.name} ({subject.corpus.source}), SHA-256 {subject.corpus.digest}",
        scorer=f"{subject.scorer.name} {subject.scorer.version}, SHA-256 {subject.scorer.digest}",
        source=subject.source,
        target=subject.target,
        settings={"site": site, "pooling": "last", "seed": str(seed), **{k: str(v) for k, v in asdict(scale).items()}},
        environment={**environment(), "torch threads": "1"},
        seconds=clock.seconds,
        prompts=bench.prompts,
        outcomes=outcomes,
        certificates=tuple(f.certified for f in fitted if f.certified is not None),
        clouds=tuple(seen),
        notes=_notes(split, subject),
    )


def _outcomes(bench: Bench, fitted: list[Fitted], clock: "_Clock") -> tuple[Outcome, ...]:
    outcomes = []
    with clock.step(f"1/{len(fitted) + 1} Generating: base"):
        outcomes.append(evaluate(bench, "base", "none", None))
    for i, f in enumerate(fitted, start=2):
        with clock.step(f"{i}/{len(fitted) + 1} Generating: {f.method}, {f.scope}"):
            outcomes.append(evaluate(bench, f.method, f.scope, f.steering))
    return tuple(outcomes)


def _read(
    network: Any, tokenizer: Any, subject: Subject, scale: Scale, site: str, seed: int, *, progress: bool
) -> Split:
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
    X = lm.extract(network, tokenizer, [subject.corpus.texts[i] for i in chosen], site=site, progress=progress)
    n = len(fitted)
    return Split(X[:n], labels[fitted], X[n:], labels[held])


def _model_name(model: str) -> str:
    embedded = EMBEDDED.get(model)
    return model if embedded is None else f"{embedded.description} ({embedded.requirement})"


def _notes(split: Split, subject: Subject) -> tuple[str, ...]:
    n, d = int((split.z == subject.source).sum()), split.X.shape[1]
    notes = [
        f"Maps and gate are fitted on the last token of whole sentences and used on every generated token, which is "
        f"another distribution: what a certificate promises holds for vectors like the fitted ones. "
        f"Prompts are neutral, so the base itself is seldom {subject.source}; a small difference is what can be seen.",
        "Perplexity is that of the sampled tokens under the unsteered model; steering away from what that model "
        "would say raises it by construction.",
        "LEACE has no target: it makes the two tones indistinguishable to linear probes, and does not aim at either.",
    ]
    if n < d:
        notes.insert(
            0,
            f"{n} rows per class in {d} dimensions leave every class covariance singular. MiMiC and LEACE therefore "
            "shrink it (OAS); MiMiC's covariance claim then holds for the shrunk covariances, not for the rows "
            "themselves, and the covariance gap in the table says by how much.",
        )
    return tuple(notes)


class _Clock:
    """Announces steps and notes how long each took."""

    def __init__(self, announce: Announce) -> None:
        self._announce = announce
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block."""
        self._announce(name)
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start


@contextmanager
def _one_thread() -> Iterator[None]:
    # two threads that wait for each other are several times slower than one where the machine has other work
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
