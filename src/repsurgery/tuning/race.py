"""The race: candidates write on the search prompts with equal noise, and those that fall behind stop early."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from repsurgery import lm
from repsurgery.errors import DataError, MissingExtraError
from repsurgery.lm.generate.generate import Generation
from repsurgery.tuning.bench import HEADROOM, Bench, Effect, effect_of
from repsurgery.tuning.candidates import Candidate, canonical, space
from repsurgery.tuning.forms import Form

__all__ = ["Race", "Raced"]

WORSE = 0.1
"""The p-value of Wilcoxon's test at which a candidate counts as worse than the best one and stops."""
CORRECTIONS = 12
"""Measurements of the price after which a candidate is given up."""
REPEATS = 10
"""Proposals in a row that are already known, after which the sampler has nothing new to propose."""


@dataclass(frozen=True, slots=True, eq=False)
class Raced:
    """A candidate that was measured.

    Attributes
    ----------
    form : Form
    placed : Placement
        At the strength whose measured price meets the budget.
    kl : float
        The measured price on the search prompts.
    wikitext_ratio : float or None
    effect : Effect
        On the search prompts that it met.
    predicted_kl : float
        The price at this strength along continuations that took no part in the race.
    finished : bool
        False where it stopped early.
    """

    form: Form
    placed: lm.Placement
    kl: float
    wikitext_ratio: float | None
    effect: Effect
    predicted_kl: float
    finished: bool


@dataclass(eq=False)
class Race:
    """Measure candidates one after another, the most promising first, and remember what was measured.

    Parameters
    ----------
    bench : Bench
    prompts : sequence of str
        The search prompts.
    budget : float
        Nats per token.
    wikitext : float or None
        The largest ratio of WikiText perplexities.
    sites : sequence of str
        Every site of a candidate.
    apart : sequence of Generation
        The continuations on which prices are predicted.
    """

    bench: Bench
    prompts: Sequence[str]
    budget: float
    wikitext: float | None
    sites: Sequence[str]
    apart: Sequence[Generation]
    raced: dict[Candidate, Raced] = field(default_factory=dict)

    def __post_init__(self) -> None:
        optuna = _optuna()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            pruner = optuna.pruners.WilcoxonPruner(p_threshold=WORSE, n_startup_steps=self.rungs[0])
        sampler = optuna.samplers.TPESampler(seed=self.bench.seed, n_startup_trials=1)
        self._study = optuna.create_study(direction="minimize", sampler=sampler, pruner=pruner)

    @property
    def rungs(self) -> list[int]:
        """The numbers of prompts after which a candidate may stop."""
        n = len(self.prompts)
        return sorted({math.ceil(n / 2), n})

    @property
    def best(self) -> Raced | None:
        """The candidate with the lowest measure on all search prompts, at the full price."""
        finished = [one for one in self.raced.values() if one.finished and one.form.candidate.price == 1]
        return min(finished, key=lambda one: one.effect.steered, default=None)

    def run(self, form: Form, *, stop_early: bool = True) -> Raced:
        """Measure one candidate; the texts and scores of an earlier run are stored, and not made again.

        Raises
        ------
        DataError
            No strength brings it to the budget.
        """
        candidate = form.candidate
        known = self.raced.get(candidate)
        if known is not None and (known.finished or stop_early):
            return known
        placed, kl, ratio = self.place(form)
        optuna = _optuna()
        trial = self._ask(candidate)
        base, steered, finished = np.empty(0), np.empty(0), True
        for rung in self.rungs:
            some = self.prompts[:rung]
            base, reported = self.bench.values(self.bench.written(some, None)), len(steered)
            steered = self.bench.values(self.bench.written(some, placed))
            for step in range(reported, rung):
                trial.report(float(steered[step]), step)
            if stop_early and rung < len(self.prompts) and trial.should_prune():
                finished = False
                break
        state = optuna.trial.TrialState.COMPLETE if finished else optuna.trial.TrialState.PRUNED
        self._study.tell(trial, float(steered.mean()) if finished else None, state=state)
        self.raced[candidate] = Raced(
            form, placed, kl, ratio, effect_of(base, steered), self.bench.kl_along(self.apart, placed), finished
        )
        return self.raced[candidate]

    def place(self, form: Form) -> tuple[lm.Placement, float, float | None]:
        """Return the function at the strength that meets the budget on the search prompts, and its prices there.

        The predicted price gives the first strength, and measurements correct it. The price grows with the square of
        the strength, and so does the logarithm of the perplexity.
        """
        most = self.budget * form.candidate.price
        aim = HEADROOM * most
        placed = lm.Placement(form.function, form.candidate.site, form.strength(aim), "all")
        for attempt in range(CORRECTIONS):
            kl = self.bench.kl(self.prompts, placed, samples=1)
            # a price that is too low is corrected once or twice, and one that is too high as long as it takes
            if kl <= most and (kl >= 0.93 * aim or attempt >= 2):
                break
            placed = placed.scaled(math.sqrt(aim / kl) if 0 < kl < math.inf else 0.25)
        else:
            raise DataError(f"No strength was found at which it costs at most {most:g} nats per token.")
        ratio = None
        # a price beyond the budget shows what it would buy, whatever the limit on WikiText
        if self.wikitext is not None and form.candidate.price <= 1:
            documents = max(1, self.bench.plan.documents // 4)
            placed, ratio = self.bench.within_wikitext(placed, self.wikitext, documents)
            kl = self.bench.kl(self.prompts, placed, samples=1)
        return placed, kl, ratio

    def proposals(self, allowed: Callable[[Candidate], bool]) -> Iterator[Candidate]:
        """Yield further candidates that the sampler expects to be good, none of them known already."""
        optuna = _optuna()
        repeats = 0
        while repeats < REPEATS:
            trial = self._study.ask(self._distributions)
            one = canonical(Candidate(**trial.params))
            known = self.raced.get(one)
            if known is not None and known.finished:
                self._study.tell(trial, known.effect.steered)
            else:
                # a candidate that is measured gets a trial of its own
                self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
            repeats = repeats + 1 if one in self.raced or not allowed(one) else 0
            if not repeats:
                yield one

    def _ask(self, candidate: Candidate) -> Any:
        if candidate.text:
            return self._study.ask()  # a plug-in's candidate has no settings for the sampler to learn from
        self._study.enqueue_trial({name: getattr(candidate, name) for name in self._distributions})
        return self._study.ask(self._distributions)

    @property
    def _distributions(self) -> dict[str, Any]:
        optuna = _optuna()
        choices = {"site": list(self.sites), **space()}
        return {name: optuna.distributions.CategoricalDistribution(values) for name, values in choices.items()}


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("The search needs Optuna: pip install 'repsurgery[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
