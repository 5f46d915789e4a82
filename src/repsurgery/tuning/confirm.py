"""The confirmation: the winner on prompts that took no part in fits or choices."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from repsurgery import lm
from repsurgery.tuning.bench import HEADROOM, Bench, Effect

__all__ = ["Confirmed", "Pair", "confirm"]

PAIRS = 12
"""Texts that are shown side by side."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One continuation without and with steering, drawn with the same noise, and the judge's scores."""

    prompt: str
    base: str
    steered: str
    base_score: float
    steered_score: float


@dataclass(frozen=True, slots=True, eq=False)
class Confirmed:
    """What was measured on the confirmation prompts.

    Attributes
    ----------
    placed : Placement
        At the strength whose price meets the budget on these prompts.
    effect : Effect
    kl : float
    wikitext_ratio : float or None
    others : tuple of (scorer, Effect)
    pairs : tuple of Pair
    unscored : pair of int
        Continuations of the base and of the steered model in which there is nothing to score.
    """

    placed: lm.Placement
    effect: Effect
    kl: float
    wikitext_ratio: float | None
    others: tuple[tuple[Any, Effect], ...]
    pairs: tuple[Pair, ...]
    unscored: tuple[int, int] = (0, 0)


def confirm(
    bench: Bench,
    prompts: Sequence[str],
    placed: lm.Placement,
    *,
    budget: float,
    wikitext: float | None,
    others: Sequence[Any] = (),
) -> Confirmed:
    """Measure a steering on ``prompts``.

    The price is measured first, along the base's own texts and on WikiText, and the strength is lowered where it
    exceeds the budget. The judge has no part in this, so that the effect stays one of prompts that chose nothing.

    Guarantees
    ----------
    The confirmed price meets the budget (test_the_confirmed_price_meets_the_budget).
    """
    while (kl := bench.kl(prompts, placed)) > budget:
        placed = placed.scaled(math.sqrt(HEADROOM * budget / kl) if math.isfinite(kl) else 0.25)
    if wikitext is None:
        ratio = bench.wikitext_ratio(placed, bench.plan.documents)
    else:
        placed, ratio = bench.within_wikitext(placed, wikitext, bench.plan.documents)
        kl = bench.kl(prompts, placed)
    effect = bench.effect(prompts, placed)
    by_others = tuple((other, bench.effect(prompts, placed, other)) for other in others)
    empty = [sum(not g.text.strip() for g in bench.written(prompts, one)) for one in (None, placed)]
    return Confirmed(placed, effect, kl, ratio, by_others, _pairs(bench, prompts, placed), (empty[0], empty[1]))


def _pairs(bench: Bench, prompts: Sequence[str], placed: lm.Placement) -> tuple[Pair, ...]:
    """Return, of the prompts with the highest scores, the continuation that has it, without and with steering.

    The choice depends on the base's texts alone, so that it does not favour the steering.
    """
    base, steered = bench.written(prompts, None), bench.written(prompts, placed)
    rows = zip(base, steered, bench.scores(base), bench.scores(steered), strict=True)
    pairs: dict[int, Pair] = {}
    for before, after, score, then in sorted(rows, key=lambda row: -row[2]):
        pairs.setdefault(before.index, Pair(before.prompt, before.text, after.text, score, then))
    return tuple(pairs.values())[:PAIRS]
