"""The results of a tuned steering in words: measure, effect, test, judge, price, and what must be said first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.numbers import fraction, is_significant, number, quantity
from repsurgery.studies.common.report.tables import shown_label
from repsurgery.studies.tuned.front import estimate_of

__all__ = [
    "Scale",
    "cautions",
    "effect_words",
    "judge_words",
    "measure_words",
    "nats",
    "optimism_words",
    "p_words",
    "price_words",
    "ratio",
    "tested_words",
]

Record = Mapping[str, Any]

_SMALL = 0.1
"""Shares below 10 % are written with one decimal."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How the judged measure is written: shares in percent, means as fractions with three decimals.

    Attributes
    ----------
    share : bool
    decimals : int
        Of percentages; 1 if base or steered share is below 10 %.
    """

    share: bool
    decimals: int = 0

    @classmethod
    def of(cls, record: Record) -> "Scale":
        """Return the scale in which all figures of ``record`` are written."""
        small = any(0 < record[key] < _SMALL for key in ("base", "steered"))
        return cls(record["measure"] == "share", 1 if small else 0)

    def value(self, value: float | None) -> str:
        """Return a value of the measure: "63 %" or ".630", and "–" for None."""
        if value is None or not self.share:
            return fraction(value)
        return f"{value * 100:.{self.decimals}f} %"

    def bare(self, difference: float) -> str:
        """Return a signed difference without its unit: "−39" percentage points, or "−.390"."""
        if not self.share:
            return fraction(difference, signed=True)
        rounded = round(difference * 100, self.decimals)
        sign = "−" if rounded < 0 else "+" if rounded > 0 else ""
        return f"{sign}{abs(rounded):.{self.decimals}f}"

    def difference(self, difference: float) -> str:
        """Return a signed difference with its unit: "−39 percentage points", or "−.390"."""
        return self.bare(difference) + (" percentage points" if self.share else "")

    def cell(self, estimated: Estimate | None) -> str:
        """Return a difference with its interval as a cell of a table: "−39 [−45, −33]"."""
        if estimated is None:
            return "–"
        if estimated.low is None or estimated.high is None:
            return self.bare(estimated.value)
        return f"{self.bare(estimated.value)} [{self.bare(estimated.low)}, {self.bare(estimated.high)}]"


def measure_words(record: Record) -> str:
    """Return what is measured: "share of continuations judged rude"."""
    source = shown_label(record["source"])
    if record["measure"] == "share":
        return f"share of continuations judged {source}"
    return f"mean judged probability of {source}"


def effect_words(record: Record) -> str:
    """Return the difference with its interval: "−39 percentage points (95 % interval −45 to −33)"."""
    effect, scale = _effect(record), Scale.of(record)
    if effect.low is None or effect.high is None:
        return scale.difference(effect.value)
    return f"{scale.difference(effect.value)} (95 % interval {scale.bare(effect.low)} to {scale.bare(effect.high)})"


def p_words(p: float | None) -> str:
    """Return "p < .001", "p = .012", or "–" for None."""
    if p is None:
        return "–"
    return "p < .001" if p < 0.001 else f"p = {fraction(p)}"


def tested_words(record: Record) -> str:
    """Return the test and its p-value, or a sentence part that says that there is none."""
    prompts, p = record["confirmation_prompts"], _effect(record).p_value
    if p is None:
        return f"{prompts} confirmation prompts, without a test"
    return f"{p_words(p)} by the sign-flip test over {prompts} confirmation prompts"


def judge_words(judge: Mapping[str, Any]) -> str:
    """Return the name of a judge and how well it separates texts that it never saw."""
    if judge.get("auc") is None:
        return f"{judge['name']} (its AUC on these labels was not measured)"
    low, high = judge.get("auc_low"), judge.get("auc_high")
    interval = "" if low is None or high is None else f" [{fraction(low, digits=2)}, {fraction(high, digits=2)}]"
    texts = "texts" if judge.get("texts") is None else f"{judge['texts']} texts"
    return f"{judge['name']} (AUC {fraction(judge['auc'], digits=2)}{interval} on {texts} that it never saw)"


def nats(kl: float | None) -> str:
    """Return a KL divergence in three decimals, in one digit and a power of ten if it is below 0.001."""
    return "–" if kl is None else number(kl) if 0 < kl < 0.001 else quantity(Estimate(kl))


def ratio(value: float | None) -> str:
    """Return a ratio of perplexities in three decimals at most, and "–" for None."""
    return "–" if value is None else quantity(Estimate(value))


def price_words(record: Record) -> list[str]:
    """Return the price against the budget: KL, and WikiText perplexity where it was measured."""
    price, budget = record["price"], record["budget"]
    words = [f"{nats(price['kl'])} nats per token, KL(base ‖ steered), with a budget of {nats(budget['kl'])}"]
    limit = budget.get("wikitext")
    if price.get("wikitext_ratio") is not None:
        allowed = "" if limit is None else f", with a budget of {ratio(limit)}"
        words.append(f"WikiText perplexity {ratio(price['wikitext_ratio'])} times that of the base{allowed}")
    elif limit is not None:
        words.append(f"WikiText perplexity was not measured; its budget is {ratio(limit)} times that of the base")
    return words


def optimism_words(record: Record) -> str:
    """Return how much stronger the effect was on the prompts of the search; "" if the record does not say."""
    optimism, scale = record.get("optimism") or {}, Scale.of(record)
    searched, confirmed = optimism.get("search"), optimism.get("confirmation")
    if searched is None or confirmed is None:
        return ""
    difference = optimism.get("difference")
    gap = searched - confirmed if difference is None else difference
    size = scale.difference(abs(gap)).removeprefix("+")
    verdict = f"too optimistic by {size}" if gap < 0 else f"too pessimistic by {size}" if gap > 0 else "exact"
    return (
        f"The effect of the chosen candidate was {scale.difference(searched)} on the search prompts, which chose it, "
        f"and {scale.difference(confirmed)} on the confirmation prompts, which took no part: the search was {verdict}."
    )


def cautions(record: Record) -> list[str]:
    """Return what a reader must know first: a budget that was not met, and an effect that was not shown."""
    return [*_budget_cautions(record), *_effect_cautions(record)]


def _budget_cautions(record: Record) -> list[str]:
    budget, price = record["budget"], record["price"]
    if budget.get("met", True):
        return []
    limit, measured = budget.get("wikitext"), price.get("wikitext_ratio")
    reasons = []
    if price["kl"] > budget["kl"]:
        reasons.append(f"the steering costs {_over(price['kl'], budget['kl'], 'nats per token')}")
    if limit is not None and measured is not None and measured > limit:
        reasons.append(f"WikiText perplexity is {_over(measured, limit, 'times that of the base')}")
    if not reasons:
        return ["The budget was not met."]
    return [f"The budget was not met: {', and '.join(reasons)}."]


def _over(measured: float, allowed: float, unit: str) -> str:
    """Return both numbers, in enough digits to differ: "0.134 nats per token (allowed: 0.100)"."""
    texts = nats(measured), nats(allowed)
    if texts[0] == texts[1]:
        texts = f"{measured:.6g}", f"{allowed:.6g}"
    return f"{texts[0]} {unit} (allowed: {texts[1]})"


def _effect_cautions(record: Record) -> list[str]:
    effect, what = _effect(record), measure_words(record)
    lines = []
    if effect.value >= 0:
        change = "is the same as before" if effect.value == 0 else "rose"
        lines.append(f"The steering did not have the intended effect: the {what} {change}.")
    if effect.p_value is None:
        lines.append("The effect was not tested, so it may be due to chance.")
    elif not is_significant(effect):
        lines.append(
            f"The effect is not significant ({p_words(effect.p_value)} over {record['confirmation_prompts']} "
            "confirmation prompts): it may be due to chance."
        )
    return lines


def _effect(record: Record) -> Estimate:
    effect = estimate_of(record["effect"])
    assert effect is not None, "check_tune_record requires effect.value"
    return effect
