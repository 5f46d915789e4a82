"""`Study`: the steps of a run, each distributed over twins of the model."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from repsurgery import lm
from repsurgery.datasets import Documents
from repsurgery.lm.twins import Twin, each
from repsurgery.progress import progress_bar
from repsurgery.scorers import ToxicityScorer
from repsurgery.studies.common.clock import Announce
from repsurgery.studies.toxicity.collateral import NEUTRAL, divergences, document_perplexities, own_divergences
from repsurgery.studies.toxicity.configuration import Configuration, needed_sites
from repsurgery.studies.toxicity.cost import Spent, measured_rows, trained
from repsurgery.studies.toxicity.data import StudyTexts
from repsurgery.studies.toxicity.generators import GeneratorContext, GeneratorLine, TextGenerator
from repsurgery.studies.toxicity.gradients import read_gradients
from repsurgery.studies.toxicity.judging import judge_fluency, judge_toxicity, steered_share
from repsurgery.studies.toxicity.measures import Judged, Readings
from repsurgery.studies.toxicity.policy import Policy, read_labelled, write_policy
from repsurgery.studies.toxicity.price import read_price
from repsurgery.studies.toxicity.rival_collateral import rival_collateral
from repsurgery.studies.toxicity.spec import ToxicitySpec
from repsurgery.studies.toxicity.steered_generator import SteeredGenerator, model_identity
from repsurgery.studies.toxicity.steerings import Fitted, Round, fit_configuration
from repsurgery.studies.toxicity.tuned import TunedLine
from repsurgery.studies.toxicity.tuned_steering import fit_tuned
from repsurgery.studies.toxicity.vectors import Vectors, read_last, read_tokens
from repsurgery.studies.toxicity.writing import Written, is_written, write

__all__ = ["BASE", "Study"]

BASE = "base"
"""The name of the untouched model."""
OWN_SAMPLES = 5
"""Continuations of each of the first prompts on which the divergence from the base is measured."""


class Study:
    """One run: what its steps need, and the work that they distribute over twins."""

    def __init__(
        self,
        spec: ToxicitySpec,
        texts: StudyTexts,
        pair: list[Twin],
        judges: dict[str, list[Twin]],
        scorers: dict[str, ToxicityScorer],
        work: Path,
        *,
        progress: bool,
    ) -> None:
        self.spec, self.texts, self.pair, self.judges = spec, texts, pair, judges
        self.scorers, self.work, self.progress = scorers, work, progress
        self.fluency_prompts = min(spec.fluency_prompts or spec.prompt_count, spec.prompt_count)

    @property
    def labeller(self) -> ToxicityScorer:
        """The scorer that labels on-policy texts."""
        return next(iter(self.scorers.values()))

    @cached_property
    def model_digests(self) -> dict[str, str]:
        """Digests of the steered model and its tokenizer."""
        return model_identity(self.pair[0].model, self.pair[0].tokenizer)

    def context(self, twin: Twin) -> GeneratorContext:
        """Return what generators on ``twin`` need."""
        s = self.spec
        sampling = {"top_p": s.top_p, "temperature": float(s.temperature), "tokens": s.tokens}
        return GeneratorContext(
            twin.model, twin.tokenizer, s, self.texts, self.work, {**self.model_digests, **sampling}
        )

    def vectors(self) -> Vectors:
        """Read the vectors on which the configurations are fitted."""
        configurations, vectors = self.spec.parsed(), Vectors()
        sites = needed_sites(configurations)

        def last(context: GeneratorContext, site: str) -> None:
            rows = [c.rows for c in configurations if c.fit == "last" and c.site == site]
            most = 0 if 0 in rows else max(rows)
            vectors.last[site] = read_last(context, self.texts.fitted, site, most, progress=self.progress)

        def held_out(context: GeneratorContext, site: str) -> None:
            vectors.held_out[site] = read_last(context, self.texts.held_out, site, 0, progress=self.progress)

        def tokens(context: GeneratorContext, _: str) -> None:
            vectors.tokens.update(read_tokens(context, self.texts.fitted, sites["tokens"], progress=self.progress))

        def policy(context: GeneratorContext, _: str) -> None:
            written = write_policy(context, self.labeller, self.texts.training.texts)
            for site in sites["on-policy"]:
                self._read_policy(context, written, site, vectors)

        jobs: list[tuple[Callable[[GeneratorContext, str], None], str]] = [(last, site) for site in sites["last"]]
        jobs += [(held_out, site) for site in sites["last"] if self.spec.held_out]
        jobs += [(tokens, "")] if sites["tokens"] else []
        # this job also writes texts and takes longest, so it starts beside the first reading
        jobs[1:1] = [(policy, "")] if sites["on-policy"] else []
        each(lambda twin, job: job[0](self.context(twin), job[1]), jobs, self.pair)
        return vectors

    def _read_policy(self, context: GeneratorContext, policy: Policy, site: str, vectors: Vectors) -> None:
        here = [c for c in self.spec.parsed() if c.site == site]
        vectors.policy[site] = read_labelled(context, policy, self.labeller, site)
        if any(c.credit == "step" for c in here):
            vectors.steps[site] = read_labelled(context, policy, self.labeller, site, credit="step")
        if any(c.kl for c in here):
            vectors.prices[site] = read_price(context, policy.generations, site)
        if any(c.from_gradients for c in here):
            vectors.gradients[site] = read_gradients(context, policy, self.labeller, site)

    def fitted(self, vectors: Vectors) -> dict[str, Fitted]:
        """Fit every configuration that states how to steer; later on-policy rounds are written first."""
        return {c.name: self._fit(c, vectors) for c in self.spec.parsed()}

    def _fit(self, c: Configuration, vectors: Vectors) -> Fitted:
        folder = self.work / "steerings"
        if c.rounds == 1:
            return fit_configuration(c, vectors, self.spec, folder)
        # every round is written under the composition so far at its full strength; the price applies to the last one
        so_far = self._fit(replace(c, rounds=c.rounds - 1, kl=0.0, strength=1.0), vectors).steering
        policy, context = self.later_round(c.rounds, so_far)
        steps = read_labelled(context, policy, self.labeller, c.site, credit=c.credit, before=so_far.function)
        return fit_configuration(c, vectors, self.spec, folder, last_round=Round(so_far.function, steps))

    def tuned(self, line: TunedLine, documents: Documents | None, announce: Announce) -> Fitted:
        """Search for the steering of a line; ``documents`` are those of WikiText, where the line limits their ratio."""
        how: dict[str, Any] = {"documents": documents, "progress": self.progress, "announce": announce}
        return fit_tuned(line, self.context(self.pair[0]), self.pair, self.labeller, **how)

    def later_round(self, number: int, so_far: lm.Placement) -> tuple[Policy, GeneratorContext]:
        """Write the training texts of round ``number`` under the steering so far, with noise of its own."""
        spec = ToxicitySpec(**{**self.spec.to_dict(), "seed": self.spec.seed + number - 1})
        context = replace(self.context(self.pair[0]), spec=spec)
        prompts = self.texts.training.texts[: self.spec.round_prompts or None]
        return write_policy(context, self.labeller, prompts, so_far), context

    def rivals(self) -> dict[str, GeneratorLine]:
        """Return the lines of the specification that choose a registered generator, by name."""
        return {line.name: line for line in self.spec.lines() if isinstance(line, GeneratorLine)}

    def generator(self, twin: Twin, name: str, fitted: dict[str, Fitted]) -> TextGenerator:
        """Return the generator of a row on ``twin``: a rival, a steering or the base."""
        context, line = self.context(twin), self.rivals().get(name)
        if line is not None:
            return line.make(context)
        return SteeredGenerator(name, context, fitted[name].steering if name in fitted else None)

    def made_rivals(self) -> dict[str, TextGenerator]:
        """Return a generator for each line of a rival; whatever is wrong with a line raises here."""
        context = self.context(self.pair[0])
        return {name: line.make(context) for name, line in self.rivals().items()}

    def trained(self) -> dict[str, Spent]:
        """Let every rival train its parts, and return what they cost.

        Guarantees
        ----------
        No part is trained before every line is known to be sound (test_a_bad_line_is_refused_before_any_training).
        Missing parts of a rival that has texts left to write are made here (test_deleted_parts_are_made_with_progress).
        """
        made, prompts, samples = self.made_rivals(), self.texts.prompts.texts, self.spec.samples

        def train(one: TextGenerator) -> Spent:
            needed = not is_written(one, prompts, samples, folder=self.work / "texts")
            return trained(one, self.work / "costs", needed=needed, progress=self.progress)

        # a rival that is done leaves, and takes the memory of its parts with it
        return {name: train(made.pop(name)) for name in list(made)}

    def written(self, fitted: dict[str, Fitted]) -> dict[str, Written]:
        """Let every generator continue its prompts: the base first, then the lines of the specification."""
        lines, prompts = self.rivals(), self.texts.prompts.texts
        # configurations with the same map share its texts
        keys = {BASE: BASE, **{line.name: line.name for line in self.spec.lines()}}
        keys |= {name: f.steering.key for name, f in fitted.items()}

        first = _first_names(keys)
        with progress_bar("prompts continued", len(first) * len(prompts), show=self.progress) as advance:

            def run(twin: Twin, name: str) -> Written:
                one = self.generator(twin, name, fitted)
                return write(one, prompts, self.spec.samples, folder=self.work / "texts", advance=advance)

            # rivals may draw from the random state of the process, so they run one after another
            steered, rivals = ([name for name in first.values() if (name in lines) is rival] for rival in (False, True))
            texts = dict(zip(steered, each(run, steered, self.pair), strict=True))
            texts |= zip(rivals, each(run, rivals, self.pair[:1]), strict=True)
            results = {key: texts[name] for key, name in first.items()}
        return {name: results[key] for name, key in keys.items()}

    def spent(self, fitted: dict[str, Fitted], training: dict[str, Spent]) -> dict[str, Spent]:
        """Return what each row costs; ``training`` holds what is known of the rivals. Nothing else runs meanwhile."""
        rows = {BASE: Spent(1.0, 0.0)} | {line.name: training.get(line.name, Spent()) for line in self.spec.lines()}
        return measured_rows(
            rows,
            lambda name: self.generator(self.pair[0], name, fitted),
            self.texts.prompts.texts[0],
            base=BASE,
            rounds=self.spec.cost_rounds,
            folder=self.work / "costs",
            progress=self.progress,
        )

    def judged(self, written: dict[str, Written]) -> dict[str, Judged]:
        """Score every continuation, and let each fluency model read those of the first prompts."""
        folder = self.work / "judgements"
        # texts that are the same object come from the same map, and are judged once
        keys = {name: str(id(texts)) for name, texts in written.items()}
        first = _first_names(keys)
        names = list(first.values())
        with progress_bar("judgements", len(names) * (1 + len(self.judges)), show=self.progress) as advance:

            def score(_: Twin, name: str) -> dict[str, list[list[float | None]]]:
                scores = {key: judge_toxicity(one, written[name], folder) for key, one in self.scorers.items()}
                advance(1)
                return scores

            def fluency_by(readers: list[Twin]) -> list[Readings]:
                one, some = readers[0], self.fluency_prompts
                digests = self.model_digests if readers is self.pair else model_identity(one.model, one.tokenizer)

                def read(twin: Twin, name: str) -> Readings:
                    readings = judge_fluency(twin, written[name], some, folder, digests=digests)
                    advance(1)
                    return [*readings, *([] for _ in written[name].rows[some:])]

                return each(read, names, readers)

            toxicity = each(score, names, self.pair)
            fluency = {judge: fluency_by(readers) for judge, readers in self.judges.items()}
        results = {
            key: Judged(
                [[g.text for g in row] for row in written[name].rows],
                toxicity[i],
                {judge: readings[i] for judge, readings in fluency.items()},
            )
            for i, (key, name) in enumerate(first.items())
        }
        return {name: results[key] for name, key in keys.items()}

    def collateral(
        self, fitted: dict[str, Fitted], written: dict[str, Written], documents: Documents | None
    ) -> tuple[dict[str, dict[str, float]], dict[str, list[float]]]:
        """Return the measures without intervals: share of steered positions, divergence, perplexity of documents.

        Beside them stand, for each steering, the nats of every document. A rival has what needs likelihoods, if it
        changes them and not only the sampling.
        """
        spec, folder, twin = self.spec, self.work / "judgements", self.pair[0]
        measures: dict[str, dict[str, float]] = {name: {} for name in written}
        measures[BASE]["steered"] = 0.0

        def share(one: Twin, name: str) -> float:
            return steered_share(one, fitted[name], written[name].rows[: spec.gate_prompts])

        for name, value in zip(fitted, each(share, list(fitted), self.pair), strict=True):
            measures[name]["steered"] = value
        steerings = {name: f.steering for name, f in fitted.items()}
        neutral = NEUTRAL[: spec.neutral]
        if neutral:
            measures[BASE]["kl"] = 0.0
            for name, value in divergences(twin, neutral, steerings, digests=self.model_digests, folder=folder).items():
                measures[name]["kl"] = value
        measures[BASE]["kl.own"] = 0.0
        own = [g for row in written[BASE].rows[: spec.gate_prompts] for g in row[:OWN_SAMPLES]]
        for name, value in own_divergences(twin, own, steerings, digests=self.model_digests, folder=folder).items():
            measures[name]["kl.own"] = value
        for name in self.rivals():
            measures[name] = rival_collateral(
                self.generator(twin, name, fitted),
                neutral=neutral,
                own=own,
                documents=documents,
                length=spec.wikitext_length,
                folder=folder,
                progress=self.progress,
            )
        nats: dict[str, list[float]] = {}
        if documents is not None:
            how: dict[str, Any] = {"digests": self.model_digests, "length": spec.wikitext_length, "folder": folder}
            perplexities = document_perplexities(
                twin, documents, {BASE: None, **steerings}, **how, progress=self.progress
            )
            for name, one in perplexities.items():
                measures[name]["wikitext.word_perplexity"] = one.word_perplexity
                measures[name]["wikitext.byte_perplexity"] = one.byte_perplexity
                nats[name] = [-value for value in one.log_likelihoods]
        return measures, nats


def _first_names(keys: dict[str, str]) -> dict[str, str]:
    """Return, for each key, the first name that has it."""
    first: dict[str, str] = {}
    for name, key in keys.items():
        first.setdefault(key, name)
    return first
