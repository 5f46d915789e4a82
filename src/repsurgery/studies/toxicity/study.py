"""`Study`: the steps of a run, each shared out among twins of the model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from repsurgery.datasets import Documents
from repsurgery.lm.twins import Twin, each
from repsurgery.progress import progress_bar
from repsurgery.scorers import ToxicityScorer
from repsurgery.studies.common.neutral import NEUTRAL
from repsurgery.studies.toxicity.collateral import divergences, document_perplexities
from repsurgery.studies.toxicity.configuration import needed_sites
from repsurgery.studies.toxicity.data import StudyTexts
from repsurgery.studies.toxicity.judging import Written, judge_fluency, judge_toxicity, steered_share
from repsurgery.studies.toxicity.measures import Judged
from repsurgery.studies.toxicity.spec import ToxicitySpec
from repsurgery.studies.toxicity.steerings import Fitted
from repsurgery.studies.toxicity.vectors import Vectors, read_last, read_policy, read_tokens, write_policy
from repsurgery.studies.toxicity.writing import Sampling, Steered, model_identity, texts_identity, write

__all__ = ["BASE", "Study"]

BASE = "base"
"""What the untouched model is called."""


class Study:
    """One run: what its steps need, and the work that they share out among twins."""

    def __init__(
        self,
        spec: ToxicitySpec,
        texts: StudyTexts,
        pair: list[Twin],
        judge: list[Twin],
        scorers: dict[str, ToxicityScorer],
        work: Path,
        *,
        progress: bool,
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
        # configurations may come to the same map; it writes once
        keys = {name: None if steered is None else steered.key for name, steered in steerings.items()}
        once = {key: steerings[name] for name, key in keys.items()}
        total = len(once) * len(self.texts.prompts)
        model = model_identity(self.pair[0])
        with progress_bar("prompts continued", total, show=self.progress) as advance:

            def run(twin: Twin, steered: Steered | None) -> Written:
                return write(
                    twin,
                    self.texts.prompts.texts,
                    self.spec.samples,
                    steering=steered,
                    sampling=self.sampling,
                    folder=self.work / "texts",
                    identity=model,
                    tell=advance,
                )

            found = dict(zip(once, each(run, list(once.values()), self.pair), strict=True))
        return {name: found[key] for name, key in keys.items()}

    def judged(self, fitted: dict[str, Fitted], written: dict[str, Written]) -> dict[str, Judged]:
        """Score every continuation, and read those of the first prompts for fluency."""
        folder, some = self.work / "judgements", self.fluency_prompts
        writer = model_identity(self.pair[0])
        reader = writer if self.judge is self.pair else model_identity(self.judge[0])
        with progress_bar("configurations judged", len(written), show=self.progress) as advance:

            def run(twin: Twin, name: str) -> Judged:
                texts = written[name]
                identity = texts_identity(writer, fitted[name].steered if name in fitted else None, self.sampling)
                toxicity = {key: judge_toxicity(s, texts, identity, folder) for key, s in self.scorers.items()}
                fluency = judge_fluency(twin, texts[:some], identity, folder, judge=reader)
                advance(1)
                unread: list[list[tuple[float, int]]] = [[] for _ in texts[some:]]
                return Judged([[g.text for g in row] for row in texts], toxicity, [*fluency, *unread])

            # texts that are the same object were written by the same map, and are judged once
            once = {id(texts): name for name, texts in reversed(written.items())}
            found = dict(zip(once, each(run, list(once.values()), self.judge), strict=True))
        return {name: found[id(texts)] for name, texts in written.items()}

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
