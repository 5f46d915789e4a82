"""Parity between two groups, 28 classes, alpha = 0 and 0.01: the linear program beside its dual."""

from functools import partial

import numpy as np

from benchmarks.clock import interleaved
from benchmarks.lines import Line, Settings, at_most, fact
from repsurgery.studies.fairness.rivals import FairPostProcessing

CLASSES = 28
CRITERIA = {"parity": "demographic-parity", "opportunity": "equal-opportunity"}


def run(settings: Settings) -> list[Line]:
    """Measure both solvers while the program is small enough, then the dual alone."""
    rounds = settings.repeats or 1
    small, large = ((300,), 1000) if settings.quick else ((2000, 10_000), 100_000)
    lines = []
    for name in CRITERIA:
        for alpha in (0.0, 0.01):
            for n in small:
                lines += _beside(n, alpha, name, rounds)
            lines += _alone(large, alpha, name, rounds)
    return lines


def _beside(n: int, alpha: float, name: str, rounds: int) -> list[Line]:
    solvers = ("linear-program", "dual")
    t = interleaved({solver: partial(_fit, n, alpha, name, solver) for solver in solvers}, rounds=rounds)
    program, dual = (t.results[solver] for solver in solvers)
    case = f"{name} alpha={alpha:g} n={n}"
    return [
        fact(f"{case} linear program", t.of("linear-program"), "s"),
        fact(
            f"{case} dual",
            t.of("dual"),
            "s",
            note=f"the program takes {t.ratio('linear-program', 'dual'):.1f} times as long",
        ),
        at_most(f"{case} difference of objectives", abs(program.objective_ - dual.objective_), 1e-8),
    ]


def _alone(n: int, alpha: float, name: str, rounds: int) -> list[Line]:
    t = interleaved({"dual": partial(_fit, n, alpha, name, "dual")}, rounds=rounds)
    case = f"{name} alpha={alpha:g} n={n}"
    return [
        fact(f"{case} dual", t.of("dual"), "s"),
        at_most(f"{case} gap of primal and dual", abs(t.results["dual"].gap_), 1e-8),
    ]


def _fit(n: int, alpha: float, name: str, solver: str) -> FairPostProcessing:
    scores, group = _scores(n)
    return FairPostProcessing(alpha=alpha, criterion=CRITERIA[name], solver=solver).fit(scores, group)


def _scores(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities of classes that fall off like 1/rank and are rarer in one group than in the other."""
    rng = np.random.default_rng(0)
    group = (rng.random(n) < 0.45).astype(int)
    prior = np.exp(0.8 * rng.normal(size=(2, CLASSES))) / np.arange(1, CLASSES + 1)
    prior /= prior.sum(axis=1, keepdims=True)
    y = (prior.cumsum(axis=1)[group] < rng.random((n, 1))).sum(axis=1).clip(max=CLASSES - 1)
    logits = np.log(prior[group]) + 1.3 * rng.normal(size=(n, CLASSES))
    logits[np.arange(n), y] += 4.0
    scores = np.exp(logits)
    return scores / scores.sum(axis=1, keepdims=True), group
