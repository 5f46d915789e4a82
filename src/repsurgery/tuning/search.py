"""`Search`: the steps of a search, from the inputs to a confirmed steering."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from repsurgery.errors import DataError, SurgeryError
from repsurgery.lm.fold.targets import TargetName
from repsurgery.lm.twins import Twin
from repsurgery.steering.function import SteeringFunction
from repsurgery.tuning.bench import Bench
from repsurgery.tuning.candidates import Candidate, candidates, gatings, methods
from repsurgery.tuning.confirm import Confirmed, confirm
from repsurgery.tuning.evidence import Evidence, gather
from repsurgery.tuning.exports import refusal
from repsurgery.tuning.forms import Form, form_of
from repsurgery.tuning.judges import Judges
from repsurgery.tuning.offers import Offer, offers, steers_everything
from repsurgery.tuning.plan import Budget
from repsurgery.tuning.prompts import PromptSplit
from repsurgery.tuning.prune import Dropped, Pruned, prune, unfit
from repsurgery.tuning.race import Race, Raced

__all__ = ["Search"]

DEARER = (0.01, 0.05, 0.2, 0.8)
"""Prices in nats per token at which the winner is measured where it shows no effect within the budget."""


@dataclass(eq=False)
class Search:
    """One search: what it was given, and what its steps have found so far.

    Attributes
    ----------
    bench : Bench
    judges : Judges
    split : PromptSplit
    sites : tuple of str
    budget : Budget
    source, target : str
    deadline : float
        Of `time.monotonic`; no candidate begins that would not leave time for the confirmation.
    announce : function of one text
    export_to : {"folder", "lora", "gguf"} or None
        The export that must hold the steering exactly.
    """

    bench: Bench
    judges: Judges
    split: PromptSplit
    sites: tuple[str, ...]
    budget: Budget
    source: str
    target: str
    deadline: float
    progress: bool
    announce: Callable[[str], None]
    export_to: TargetName | None = None
    evidence: Evidence = field(init=False, repr=False)
    pruned: Pruned = field(init=False, repr=False)
    race: Race = field(init=False, repr=False)
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _slowest: float = 0.0

    @property
    def pair(self) -> Sequence[Twin]:
        """The model on all cores."""
        return self.bench.pair

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Announce a step, and note how long it takes."""
        self.announce(name)
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 1)

    def gather(self) -> Evidence:
        """Let the model write on the writing prompts, and read everything that candidates are fitted from."""
        plan = self.bench.plan
        with self.step(
            f"writing: {len(self.split.writing)} prompts x {plan.writing_samples}, read at {', '.join(self.sites)}"
        ):
            self.evidence = gather(
                self.pair,
                self.judges.texts,
                self.split.folds,
                self.judges.labeller,
                source=self.source,
                target=self.target,
                sites=self.sites,
                plan=plan,
                seed=self.bench.seed,
                work=self.bench.work / "evidence",
                progress=self.progress,
                sampling=self.bench.sampling,
            )
        self.notes += dict.fromkeys(note for half in self.evidence.halves for note in half.notes)
        return self.evidence

    def choose(self) -> Raced:
        """Drop candidates by closed forms, race the others, and return the best one."""
        with self.step("predicting effects and prices"):
            own = list(filter(self.evidence.supports, candidates(self.sites, self.evidence.fits)))
            every: list[Candidate | Offer] = [
                *own,
                *offers(self.evidence, self.sites, [candidate.name for candidate in own]),
            ]
            self.pruned = prune(
                every, self.evidence, kl=self.budget.kl, most=self.bench.plan.raced, refused=self._refused
            )
        self.announce(f"{len(self.pruned.forms)} of {len(every)} candidates are worth a measurement")
        if not self.pruned.forms:
            reasons = "; ".join(f"{one.candidate.name}: {one.reason}" for one in self.pruned.dropped[:3])
            raise DataError(f"No candidate is worth a measurement. {reasons} Give more prompts or texts.")
        with self.step(f"measuring candidates: {len(self.split.search)} prompts x {self.bench.plan.samples}"):
            return self._raced()

    def _raced(self) -> Raced:
        budget, apart = (self.budget.kl, self.budget.wikitext), self.evidence.apart
        self.race = Race(self.bench, self.split.search, *budget, self.sites, apart)
        began = time.monotonic()
        self.bench.written(self.split.search, None)
        self._slowest = time.monotonic() - began
        queue = self.pruned.forms
        for number, form in enumerate(queue, 1):
            if number > 1 and self._time_is_up():
                self.notes.append(f"The time was up after {number - 1} of {len(queue)} candidates.")
                break
            self._run(form, f"{number} of {len(queue)}")
        if self.race.best is None:
            reasons = "; ".join(f"{one.candidate.name}: {one.reason}" for one in self.pruned.dropped[-3:])
            raise DataError(f"No candidate could be measured at this price. {reasons}")
        self._run_more(self.race.best)
        best = self.race.best
        for price in self.bench.plan.prices:
            if not self._time_is_up():
                self._run_at(best, price)
        return best

    def _time_is_up(self) -> bool:
        """Return whether a further candidate would leave too little time for the confirmation.

        The confirmation writes with and without steering, and measures prices; on as many prompts it takes about three
        times as long as the slowest candidate.
        """
        share = len(self.split.confirmation) / len(self.split.search)
        return time.monotonic() + (1 + 3 * share) * self._slowest > self.deadline

    def _run_more(self, best: Raced) -> None:
        """Try gates behind the best candidate, the methods of the paper, and what the sampler proposes."""
        scopes = reversed(gatings()) if self.bench.plan.gates else ()
        gated = [self._gated(best.form, scope) for scope in scopes]
        paper = [form for form in self.pruned.paper if self.bench.plan.compared and not self._refused(form)]
        for form in (*gated, *paper):
            if form is not None and not self._time_is_up():
                self._run(form, "further", stop_early=form not in paper)

        def allowed(candidate: Candidate) -> bool:
            known = (one.candidate == candidate for one in self.pruned.dropped)
            return not any(known) and self.evidence.supports(candidate)

        proposed = self.race.proposals(allowed)
        for number in range(self.bench.plan.proposals):
            candidate = None if self._time_is_up() else next(proposed, None)
            if candidate is None:
                break
            form = self._formed(candidate)
            if form is not None:
                self._run(form, f"proposal {number + 1}")

    def _gated(self, form: Form, scope: str) -> Form | None:
        gated = replace(form.candidate, scope=scope)
        allowed = steers_everything(form.function) if gated.text else methods()[gated.method].gated
        return self._formed(gated, form.function) if allowed and self.evidence.supports(gated) else None

    def _formed(self, candidate: Candidate, plain: SteeringFunction | None = None) -> Form | None:
        try:
            form = form_of(candidate, self.evidence, plain)
        except SurgeryError as error:
            self.pruned.dropped.append(Dropped(candidate, f"It cannot be fitted: {error}"))
            return None
        reason = unfit(form, self.budget.kl) or self._refused(form)
        if reason:
            self.pruned.dropped.append(Dropped(candidate, reason, form))
        return None if reason else form

    def _refused(self, form: Form) -> str:
        reason = refusal(self.pair[0].model, form.function, form.candidate.site, self.export_to)
        return f"An export to {self.export_to} cannot hold it: {reason}" if reason else ""

    def _run_at(self, best: Raced, price: float) -> None:
        form = replace(best.form, candidate=replace(best.form.candidate, price=price))
        self._run(form, "at another price", stop_early=False)

    def _run(self, form: Form, where: str, *, stop_early: bool = True) -> None:
        began = time.monotonic()
        try:
            raced = self.race.run(form, stop_early=stop_early)
        except DataError as error:
            self.pruned.dropped.append(Dropped(form.candidate, str(error), form))
            return
        self._slowest = max(self._slowest, time.monotonic() - began)
        best, e = self.race.best, raced.effect
        stopped = "" if raced.finished else " (stopped early)"
        so_far = "" if best is None else f"; best so far {best.effect.steered:.3f}"
        self.announce(f"  {where}: {form.candidate.name}: {e.base:.3f} -> {e.steered:.3f}{stopped}{so_far}")

    def confirm(self, best: Raced) -> Confirmed:
        """Measure the winner on the confirmation prompts; where it shows no effect, also what higher prices buy."""
        prompts = self.split.confirmation
        with self.step(f"confirmation: {len(prompts)} prompts x {self.bench.plan.samples}"):
            confirmed = confirm(
                self.bench,
                prompts,
                best.placed,
                budget=self.budget.kl,
                wikitext=self.budget.wikitext,
                others=self.judges.others,
            )
        if confirmed.effect.high >= 0:
            with self.step("no effect at this price: measuring higher ones"):
                for nats in [nats for nats in DEARER if nats > 1.5 * self.budget.kl][:3]:
                    self._run_at(best, nats / self.budget.kl)
        return confirmed
