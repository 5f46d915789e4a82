"""What every candidate is fitted from, read once for all sites together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery import lm
from repsurgery.arrays import Label, Matrix
from repsurgery.datasets import LabelledTexts
from repsurgery.errors import DataError
from repsurgery.lm.batching.tokens import encode
from repsurgery.lm.generate.generate import Generation
from repsurgery.lm.policy.credit import prefix_scores
from repsurgery.lm.policy.on_policy import OnPolicy
from repsurgery.lm.policy.scores import Scores
from repsurgery.lm.twins import Twin, each
from repsurgery.moments import ClassMoments
from repsurgery.price import Fisher
from repsurgery.tuning.candidates import Candidate, Fit
from repsurgery.tuning.plan import Plan

__all__ = ["Evidence", "Half", "gather", "spread_out"]

SPREAD = 0.3
"""Prompts whose continuations all have scores closer than this say almost nothing about which step to change."""


@dataclass(frozen=True, slots=True, eq=False)
class Half:
    """What the model wrote after one half of the writing prompts, by site.

    Attributes
    ----------
    moments : mapping of fit to mapping of site to ClassMoments
        Of "on-policy" and "steps"; a fit is absent where too few texts are of one class.
    gradients : mapping of site to (prompts, d) array
        Of the credit; empty where fewer than two prompts have continuations that differ in score.
    fishers, judges : mapping of site to Fisher
        For fits and for their prices: a natural shift is cheap by the very matrix that chose it, the more so the fewer
        draws that matrix is from.
    steps : mapping of site to (n, d) array
        States of some unsteered steps, on which steerings are priced.
    apart : tuple of Generation
        The continuations of ``judges``: others than those of ``fishers``, as far as there are any.
    notes : tuple of str
        What could not be fitted, and why.
    """

    moments: Mapping[str, Mapping[str, ClassMoments]]
    gradients: Mapping[str, Matrix]
    fishers: Mapping[str, Fisher]
    judges: Mapping[str, Fisher]
    steps: Mapping[str, NDArray[np.float32]]
    apart: tuple[Generation, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evidence:
    """What a method that `tune` races is fitted from, at every site: labelled texts, and what the model wrote.

    A method reads `source`, `target`, `sites`, `fits`, `moments`, `gradients`, `fisher` and `steps`. The search fits it
    on all prompts, and on each `half` of them to judge it by the gradients of the other one.

    Attributes
    ----------
    source, target : str
        The labels to steer from and to.
    texts : mapping of site to ClassMoments
        Empty without labelled texts.
    text_gradients : mapping of site to (pairs, d) array
    halves : pair of Half
        What the model wrote after each half of the writing prompts.
    part : tuple of int
        The halves whose moments and gradients are given.

    Guarantees
    ----------
    A half knows no moments and no gradients of the other one (test_a_half_knows_nothing_of_the_other).
    """

    source: str
    target: str
    texts: Mapping[str, ClassMoments]
    text_gradients: Mapping[str, Matrix]
    halves: tuple[Half, Half]
    part: tuple[int, ...] = (0, 1)

    @classmethod
    def of(
        cls, X: Any, z: Any, *, source: str, target: str, site: str, gradients: Any = None, fisher: Fisher | None = None
    ) -> "Evidence":
        """Return evidence from vectors of your own, to try a method without a model and a search.

        Parameters
        ----------
        X : (n, d) array-like
            The vectors; they serve as those of the texts and, every other one in each half, as the model's own steps.
        z : (n,) labels
            Of both ``source`` and ``target``, at least four each.
        source, target, site : str
        gradients : (m, d) array-like or None
            One row for each prompt; every other one is in each half.
        fisher : Fisher or None
            None is the identity: half the squared length of a shift is its price.
        """
        rows, labels = np.asarray(X, dtype=np.float64), np.asarray(z)
        metric = fisher or Fisher(len(rows), np.eye(rows.shape[1]))
        # of each label, every other row
        order = np.argsort(labels, kind="stable")
        halves = [
            Half(
                {"on-policy": {site: ClassMoments.of(rows[part], labels[part])}},
                {} if gradients is None else {site: np.asarray(gradients, dtype=np.float64)[i::2]},
                {site: metric},
                {site: metric},
                {site: rows[part].astype(np.float32)},
            )
            for i, part in enumerate((order[::2], order[1::2]))
        ]
        return cls(source, target, {site: ClassMoments.of(rows, labels)}, {}, (halves[0], halves[1]))

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that were read."""
        return tuple(self.halves[0].steps)

    @property
    def fits(self) -> list[Fit]:
        """The fits for which there are moments of both halves."""
        own: tuple[Fit, ...] = ("on-policy", "steps")
        found: list[Fit] = ["texts"] if self.texts else []
        return [*found, *(name for name in own if all(name in half.moments for half in self.halves))]

    @property
    def has_gradients(self) -> bool:
        """Whether both halves have gradients."""
        return all(len(half.gradients) for half in self.halves)

    def supports(self, candidate: Candidate) -> bool:
        """Return whether there is everything that one of our own candidates is fitted from."""
        c = candidate
        gated = c.scope == "all" or "on-policy" in self.fits
        return c.needs <= set(self.fits) and gated and (self.has_gradients or not c.is_credited)

    def half(self, number: int) -> "Evidence":
        """Return the evidence with moments and gradients of one half of the prompts alone, 0 or 1.

        Labelled texts, Fisher matrices and steps stay those of all: they say nothing of the scores that the other half
        judges by.
        """
        return replace(self, part=(number,))

    def moments(self, fit: str, site: str) -> ClassMoments:
        """Return the moments of source and target at ``site``.

        Parameters
        ----------
        fit : {"texts", "on-policy", "steps"}
            Of every token of the labelled texts; of every step of the model's own texts, labelled by the score of the
            text; or of the same steps, each labelled by its own credit. `fits` says which there are.
        site : str
        """
        if fit not in self.fits:
            raise DataError(f"There are no moments of {fit!r} in this search; there are {', '.join(self.fits)}.")
        if fit == "texts":
            return self.texts[site]
        first, *rest = (self.halves[i].moments[fit][site] for i in self.part)
        return sum(rest, first)

    def gradients(self, site: str, *, fit: str = "on-policy") -> Matrix:
        """Return gradients (n, d) of what is to fall, in a shift of the states; `has_gradients` says if there are any.

        Parameters
        ----------
        site : str
        fit : {"texts", "on-policy", "steps"}
            "texts": of the mean log-likelihood of a token, of source texts less target texts, a row for each pair.
            Otherwise of the score of the model's own texts, a row for each prompt.
        """
        parts = [self.text_gradients] if fit == "texts" else [self.halves[i].gradients for i in self.part]
        if not all(site in part for part in parts):
            raise DataError(f"There are no gradients of {fit!r} at {site!r} in this search; see has_gradients.")
        return np.concatenate([part[site] for part in parts])

    def fisher(self, site: str) -> Fisher:
        """Return the Fisher matrix of all prompts; prices are predicted by another one, along other texts."""
        return self.halves[0].fishers[site] + self.halves[1].fishers[site]

    def judge(self, site: str) -> Fisher:
        """Return the Fisher matrix along other texts, by which the search predicts the price of what was fitted."""
        return self.halves[0].judges[site] + self.halves[1].judges[site]

    @property
    def apart(self) -> list[Generation]:
        """Continuations that no map was fitted on, as far as there are any; on them prices are predicted."""
        return [g for half in self.halves for g in half.apart]

    def steps(self, site: str) -> NDArray[np.float32]:
        """Return states (n, d) of unsteered steps of all prompts, on which steerings are priced."""
        return np.concatenate([half.steps[site] for half in self.halves])

    def __repr__(self) -> str:
        """Return labels, sites and fits."""
        return f"Evidence({self.source!r} to {self.target!r} at {', '.join(self.sites)}; {', '.join(self.fits)})"


def gather(
    pair: Sequence[Twin],
    texts: LabelledTexts | None,
    folds: Sequence[Sequence[str]],
    labeller: Any,
    *,
    source: str,
    target: str,
    sites: Sequence[str],
    plan: Plan,
    seed: int,
    work: Path,
    progress: bool,
    sampling: Mapping[str, Any] | None = None,
) -> Evidence:
    """Read the texts, let the model write, and return what candidates are fitted from; interrupted work is resumed."""

    def read_texts(twin: Twin) -> tuple[Mapping[str, ClassMoments], Mapping[str, Matrix]]:
        assert texts is not None
        some = _drawn(texts, plan.texts, seed)
        moments = lm.class_moments(
            twin.model,
            twin.tokenizer,
            some.texts,
            list[Label](some.labels),
            sites=list(sites),
            pooling="all",
            groups=some.texts,
            max_length=plan.text_tokens,
            progress=False,
            work_dir=work / "texts",
        )
        return moments, _text_gradients(twin, some, (source, target), sites, plan.text_tokens, work / "texts")

    def half(number: int, twin: Twin) -> Half:
        # a folder each, because both halves are written at the same time
        return _half(
            twin,
            folds[number],
            labeller,
            (source, target),
            sites,
            plan,
            seed,
            work / f"half-{number}",
            progress=progress,
            sampling=sampling or {},
        )

    wanted = texts is not None and "texts" in plan.fits
    jobs: list[Any] = [partial(half, 0), partial(half, 1), *([read_texts] if wanted else [])]
    first, second, *rest = each(lambda twin, job: job(twin), jobs, pair)
    moments, gradients = rest[0] if rest else ({}, {})
    return Evidence(source, target, moments, gradients, (first, second))


def _text_gradients(
    twin: Twin, texts: LabelledTexts, labels: tuple[str, str], sites: Sequence[str], max_length: int, work: Path
) -> Mapping[str, Matrix]:
    """Return the gradients of the log-likelihoods of pairs of texts, source less target, in a shift of the states.

    The i-th text of one label is paired with the i-th of the other. Every token but the first is predicted.
    """
    by_label = [[t for t, z in zip(texts.texts, texts.labels, strict=True) if z == label] for label in labels]
    generations, credits_ = [], []
    for pair, both in enumerate(zip(*by_label, strict=False)):
        rows = encode(twin.model, twin.tokenizer, list(both), max_length=max_length, caller="tune")
        # a text of one token has nothing to predict
        for sample, (tokens, sign) in enumerate(zip(rows, (1.0, -1.0), strict=True) if min(map(len, rows)) > 1 else ()):
            generations.append(
                Generation("", pair, sample, "", tuple(tokens[1:]), finished=False, prompt_tokens=(tokens[0],))
            )
            credits_.append(np.full(len(tokens) - 1, sign / (len(tokens) - 1)))
    return lm.credit_gradients(
        twin.model, twin.tokenizer, generations, credits_, sites=list(sites), progress=False, work_dir=work
    )


def _half(
    twin: Twin,
    prompts: Sequence[str],
    labeller: Any,
    labels: tuple[str, str],
    sites: Sequence[str],
    plan: Plan,
    seed: int,
    work: Path,
    *,
    progress: bool,
    sampling: Mapping[str, Any],
) -> Half:
    how: dict[str, Any] = {
        **sampling,
        **{"sites": list(sites), "samples": plan.writing_samples, "max_new_tokens": plan.tokens, "seed": seed},
        **{"source_at": "auto", "target_at": "auto", "progress": progress, "work_dir": work},
    }
    try:
        own = lm.on_policy(twin.model, twin.tokenizer, prompts, labeller, **how)
    except DataError as error:
        what, _, _ = str(error).partition("Each class needs")
        raise DataError(
            f"{what}The model's own continuations must show both, so that there is something to steer. Give more "
            f"prompts, or prompts that provoke {labels[0]!r}."
        ) from error
    moments, notes = {"on-policy": _renamed(own, labels)}, []
    telling = _telling(own)
    gradients: Mapping[str, Matrix] = {}
    if len({g.index for g in telling}) >= 2:
        prefixes = prefix_scores(Scores(labeller, work), twin.tokenizer, telling, progress=progress)
        credits_ = [np.diff(row) for row in prefixes]
        gradients = lm.credit_gradients(
            twin.model, twin.tokenizer, telling, credits_, sites=list(sites), progress=progress, work_dir=work
        )
        if "steps" in plan.fits:
            asked = list(dict.fromkeys(g.prompt for g in telling))
            try:
                steps = lm.on_policy(twin.model, twin.tokenizer, asked, labeller, credit="step", **how)
                moments["steps"] = _renamed(steps, labels)
            except DataError as error:
                notes.append(f"No fit on steps: {error}")
    else:
        notes.append("The continuations of fewer than two prompts differ in score, so no step can be credited.")
    some, apart = spread_out(own.generations, plan.priced // 2)
    fishers, judges = (
        lm.fisher(
            *(twin.model, twin.tokenizer, texts),
            sites=list(sites),
            samples=plan.draws,
            seed=seed + again,
            progress=progress,
            work_dir=work,
        )
        for again, texts in enumerate((some, apart))
    )
    states = {
        site: np.concatenate(lm.states_along(twin.model, twin.tokenizer, some, site=site, progress=False))
        for site in sites
    }
    return Half(moments, gradients, fishers, judges, states, tuple(apart), tuple(notes))


def _drawn(texts: LabelledTexts, most: int, seed: int) -> LabelledTexts:
    """Return at most ``most`` texts of each label, drawn at random and in their order."""
    labels, rng = np.array(texts.labels), np.random.default_rng(seed)
    rows = [rng.permutation(np.flatnonzero(labels == label))[:most] for label in texts.counts]
    return texts.where(np.sort(np.concatenate(rows)))


def _renamed(own: OnPolicy, labels: tuple[str, str]) -> dict[str, ClassMoments]:
    names: tuple[str, str] = ("source", "target")
    return {
        site: ClassMoments({label: moments[name] for label, name in zip(labels, names, strict=True)})
        for site, moments in own.items()
    }


def _telling(own: OnPolicy) -> list[Generation]:
    """Return the continuations of the prompts whose highest and lowest score differ by `SPREAD` at least."""
    by_prompt: dict[int, list[float]] = {}
    for g, score in zip(own.generations, own.scores, strict=True):
        by_prompt.setdefault(g.index, []).append(score or 0.0)
    return [g for g in own.generations if np.ptp(by_prompt[g.index]) >= SPREAD and g.tokens]


def spread_out(generations: Sequence[Generation], most: int) -> tuple[list[Generation], list[Generation]]:
    """Return about ``most`` generations with at least one token, evenly distributed, and as many others if there are.

    Where there are no others, both are the same ones.
    """
    written = [g for g in generations if g.tokens]
    step = max(1, len(written) // max(most, 1))
    return written[::step], written[step // 2 :: step]
