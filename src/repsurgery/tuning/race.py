"""The race: candidates write on the search prompts with equal noise, and those that are surely worse stop early."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from repsurgery.checkpoint import Journal, journal_of
from repsurgery.errors import MissingExtraError
from repsurgery.tuning.bench import Bench, Effect, Placed, effect_of
from repsurgery.tuning.candidates import SPACE, Candidate, canonical
from repsurgery.tuning.forms import Form

__all__ = ["Race", "Raced"]

WORSE = 0.1
"""The p-value of Wilcoxon's test at which a candidate is surely worse than the best one and stops."""
HEADROOM = 0.97
"""The share of the budget at which the price is placed on the search prompts, because other prompts differ a little."""
REPEATS = 10
"""Proposals in a row that are already known, after which the sampler has nothing new to propose."""


@dataclass(frozen=True, slots=True, eq=False)
class Raced:
    """A candidate that was measured.

    Attributes
    ----------
    form : Form
    placed : Placed
        At the strength whose measured price meets the budget.
    kl : float
        The measured price on the search prompts.
    wikitext_ratio : float or None
    effect : Effect
        On the search prompts that it met.
    finished : bool
        False where it stopped early.
    """

    form: Form
    placed: Placed
    kl: float
    wikitext_ratio: float | None
    effect: Effect
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
    folder : path
        Finished candidates are stored there; the same search continues after them.
    sites : sequence of str
        Every site of a candidate.
    """

    bench: Bench
    prompts: Sequence[str]
    budget: float
    wikitext: float | None
    folder: Path
    sites: Sequence[str]
    raced: dict[Candidate, Raced] = field(default_factory=dict)

    def __post_init__(self) -> None:
        optuna = _optuna()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            pruner = optuna.pruners.WilcoxonPruner(p_threshold=WORSE, n_startup_steps=self.rungs[0])
        sampler = optuna.samplers.TPESampler(seed=self.bench.seed, n_startup_trials=1)
        self._study = optuna.create_study(direction="minimize", sampler=sampler, pruner=pruner)
        self._journal: Journal = journal_of(
            self.folder,
            "race",
            {
                **self.bench.identity,
                **{"prompts": list(self.prompts), "judge": self.bench.judge.digest, "measure": self.bench.measure},
                **{"plan": self.bench.plan.to_dict(), "seed": self.bench.seed, "kl": self.budget},
                **{"wikitext": self.wikitext, **self.bench.sampling},
            },
        )

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
        """Measure one candidate, or return what is stored of it."""
        candidate = form.candidate
        if candidate in self.raced:
            return self.raced[candidate]
        placed, kl, ratio = self.place(form)
        optuna = _optuna()
        trial = self._ask(candidate)
        base, steered = np.empty(0), np.empty(0)
        stored = self._journal.get(placed.key)
        finished, reported = True, 0
        for rung in self.rungs:
            some = self.prompts[:rung]
            if stored is not None and len(stored["values"]) < rung:
                finished = False
                break
            base = self.bench.values(self.bench.written(some, None))
            steered = (
                np.array(stored["values"][:rung]) if stored else self.bench.values(self.bench.written(some, placed))
            )
            for step in range(reported, rung):
                trial.report(float(steered[step]), step)
            reported = rung
            if stored is None and stop_early and rung < len(self.prompts) and trial.should_prune():
                finished = False
                break
        if stored is None:
            self._journal.note({placed.key: {"values": steered.tolist(), "candidate": candidate.name}})
        state = optuna.trial.TrialState.COMPLETE if finished else optuna.trial.TrialState.PRUNED
        self._study.tell(trial, float(steered.mean()) if finished else None, state=state)
        self.raced[candidate] = Raced(form, placed, kl, ratio, effect_of(base, steered), finished)
        return self.raced[candidate]

    def place(self, form: Form) -> tuple[Placed, float, float | None]:
        """Return the function at the strength that meets the budget on the search prompts, and its prices there.

        The predicted price gives the first strength, and measurements correct it. The price grows with the square of
        the strength, and so does the logarithm of the perplexity.
        """
        aim = HEADROOM * self.budget * form.candidate.price
        placed, kl = Placed(form.function, form.candidate.site, form.strength(aim)), math.nan
        for _ in range(3):
            kl = self.bench.kl(self.prompts, placed, samples=1)
            if 0.93 * aim <= kl <= self.budget * form.candidate.price:
                break
            placed = placed.scaled(math.sqrt(aim / kl) if 0 < kl < math.inf else 0.25)
        else:
            kl = self.bench.kl(self.prompts, placed, samples=1)
        ratio = None
        # a price beyond the budget shows what it would buy, whatever the limit on WikiText
        if self.wikitext is not None and form.candidate.price <= 1:
            placed, ratio = self._within_wikitext(placed)
            kl = self.bench.kl(self.prompts, placed, samples=1)
        return placed, kl, ratio

    def _within_wikitext(self, placed: Placed) -> tuple[Placed, float | None]:
        assert self.wikitext is not None
        aim = HEADROOM * math.log(self.wikitext)
        documents = max(1, self.bench.plan.documents // 4)
        while (ratio := self.bench.wikitext_ratio(placed, documents)) is not None and ratio > self.wikitext:
            placed = placed.scaled(math.sqrt(aim / math.log(ratio)))
        return placed, ratio

    def proposals(self, allowed: Callable[[Candidate], bool]) -> Iterator[Candidate]:
        """Yield further candidates that the sampler expects to be good, none of them known already."""
        optuna = _optuna()
        repeats = 0
        while repeats < REPEATS:
            trial = self._study.ask(self._distributions)
            one = canonical(Candidate(**trial.params))
            if one in self.raced:
                self._study.tell(trial, self.raced[one].effect.steered)
            else:
                # a candidate that is measured gets a trial of its own
                self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
            repeats = repeats + 1 if one in self.raced or not allowed(one) else 0
            if not repeats:
                yield one

    def _ask(self, candidate: Candidate) -> Any:
        self._study.enqueue_trial({name: getattr(candidate, name) for name in self._distributions})
        return self._study.ask(self._distributions)

    @property
    def _distributions(self) -> dict[str, Any]:
        optuna = _optuna()
        space = {"site": list(self.sites), **SPACE}
        return {name: optuna.distributions.CategoricalDistribution(values) for name, values in space.items()}


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("The search needs Optuna: pip install 'repsurgery[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
