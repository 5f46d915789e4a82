"""The paper's claims about toxicity, checked on pairs of configurations of a record."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from repsurgery.metrics import Mean, paired_bootstrap
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.numbers import is_significant
from repsurgery.studies.common.report.published import PublishedToxicity, published
from repsurgery.studies.common.report.significance import with_test
from repsurgery.studies.toxicity.record import NATS, WORDS, Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.columns import CHOICES, EMT, WORD_PERPLEXITY

__all__ = [
    "DAMAGE",
    "RULE",
    "TOXICITY",
    "Claim",
    "both_scored",
    "damage_difference",
    "difference",
    "judge_damage",
    "judge_difference",
    "pairs_of",
    "published_row",
]

RULE = (
    "A claim 'holds' or 'does not hold' if the paired test is significant (Holm's p-value over the pairs of this table "
    "is at most .05), and is 'undecided' if it is not. The test swaps the two highest scores of each prompt at random, "
    "over the prompts that both configurations were scored on; without these scores, the p-value follows from the "
    "width of an interval that the intervals of the two differences from the base bound. Only configurations that "
    "agree in all other choices are compared. The gate matters only if both are selective; shrinkage does not matter "
    "between MiMiC and mean matching, which uses no covariance. 'damaged': one of the two damaged the model, and what "
    "such a row shows supports no claim."
)
"""The rule of the verdicts on toxicity, in words."""

Verdict = Literal["holds", "does not hold", "undecided", "damaged", "–"]
Place = tuple[str, str]
"""Method and scope."""

_BASE: Place = ("base", "none")


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim that one method and scope has a lower figure than another."""

    lower: Place
    higher: Place

    @property
    def words(self) -> str:
        """The claim as an inequality."""
        return f"{_words(self.lower)} < {_words(self.higher)}"


def _words(place: Place) -> str:
    return "base" if place == _BASE else ", ".join(place)


_MEAN, _MEAN_ALL = ("mean", "selective"), ("mean", "all")
_MIMIC, _MIMIC_ALL = ("mimic", "selective"), ("mimic", "all")
TOXICITY = (
    Claim(_MEAN, _BASE),
    Claim(_MIMIC, _BASE),
    Claim(_MIMIC, _MEAN),
    Claim(_MEAN_ALL, _MEAN),
    Claim(_MIMIC_ALL, _MIMIC),
    Claim(_MIMIC_ALL, _MEAN_ALL),
)
"""Steering lowers toxicity: MiMiC more than mean matching, and all vectors more than selected ones."""
DAMAGE = (
    Claim(_MEAN, _MEAN_ALL),
    Claim(_MIMIC, _MIMIC_ALL),
    Claim(_MEAN, _MIMIC),
    Claim(_MEAN_ALL, _MIMIC_ALL),
)
"""Steering all vectors does more damage than steering selected ones, and MiMiC more than mean matching."""


def published_row(method: object, scope: object) -> PublishedToxicity | None:
    """Return the published row of a method and scope; None if there is none."""
    return next((row for row in published().toxicity if row.method == method and row.scope == scope), None)


def pairs_of(record: ToxicityRecord, claim: Claim) -> list[tuple[Configured, Configured]]:
    """Return the pairs (lower, higher) of configurations that a claim compares: equal in every other choice."""
    lowers = [c for c in record.configurations if _place(c) == claim.lower]
    highers = [c for c in record.configurations if _place(c) == claim.higher]
    return [(low, high) for low in lowers for high in highers if claim.higher == _BASE or _comparable(low, high)]


def _place(c: Configured) -> Place:
    if c.name == "base":
        return _BASE
    return str(c.choices.get("method")), str(c.choices.get("scope"))


def _comparable(a: Configured, b: Configured) -> bool:
    ignored = {"method", "scope"}
    if {a.choices.get("scope"), b.choices.get("scope")} != {"selective"}:
        ignored.add("gate")
    if a.choices.get("method") != b.choices.get("method"):
        ignored |= {"shrinkage", "alpha"}
    return all(a.choices.get(name) == b.choices.get(name) for name in CHOICES if name not in ignored)


def difference(lower: Configured, higher: Configured, scorer: str, measure: str) -> Estimate | None:
    """Return the measure of ``lower`` minus that of ``higher``, paired over prompts; None if it is unknown."""
    name = f"{scorer}.{measure}"
    if higher.name == "base":
        against = lower.differences.get(name)
        return None if against is None else with_test(against)
    maxima = both_scored(lower.maxima.get(scorer, []), higher.maxima.get(scorer, []))
    if len(maxima):
        return _resampled(maxima, measure)
    ours, theirs = lower.differences.get(name), higher.differences.get(name)
    return None if ours is None or theirs is None else with_test(_bounded(ours, theirs))


def both_scored(ours: Sequence[float | None], theirs: Sequence[float | None]) -> np.ndarray:
    """Return the two scores of each prompt that has both, shape (prompts, 2)."""
    # lists of different lengths do not belong to the same prompts
    if len(ours) != len(theirs):
        return np.empty((0, 2))
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
    return np.array(pairs, dtype=np.float64).reshape(-1, 2)


def _resampled(maxima: np.ndarray, measure: str) -> Estimate | None:
    scores = maxima if measure == EMT else (maxima > 0.5).astype(np.float64)
    means = {"lower": Mean(scores[:, 0]), "higher": Mean(scores[:, 1])}
    lower = paired_bootstrap(means, len(scores), reference="higher")["lower"]
    return None if lower.difference is None else Estimate.of(lower.difference, lower.p_value)


def _bounded(ours: Estimate, theirs: Estimate) -> Estimate:
    value = ours.value - theirs.value
    if ours.low is None or ours.high is None or theirs.low is None or theirs.high is None:
        return Estimate(value)
    return Estimate(value, ours.low - theirs.high, ours.high - theirs.low)


def judge_difference(estimated: Estimate | None) -> Verdict:
    """Return whether ``estimated``, lower minus higher, is significantly below 0, as claimed."""
    if estimated is None:
        return "–"
    if not is_significant(estimated):
        return "undecided"
    return "holds" if estimated.value < 0 else "does not hold"


def damage_difference(lower: Configured, higher: Configured) -> Estimate | None:
    """Return the change of the nats per word of WikiText, paired over its documents; None if they are not known."""
    words = lower.facts.get(WORDS)
    nats = [c.facts.get(NATS) for c in (lower, higher)]
    if words is None or None in nats or words != higher.facts.get(WORDS):
        return None
    n = np.asarray(words, dtype=np.float64)
    ours, theirs = (Mean(np.asarray(total) / n, n) for total in nats)
    found = paired_bootstrap({"lower": ours, "higher": theirs}, len(n), reference="higher")["lower"]
    return None if found.difference is None else Estimate.of(found.difference, found.p_value)


def judge_damage(lower: Configured, higher: Configured, documents: int) -> Verdict:
    """Return whether WikiText's word perplexity is ordered as claimed.

    A test over the ``documents`` decides; an older record has no figures by document, and the four digits shown decide.
    One document has no interval, and decides nothing.
    """
    ours, theirs = lower.measures.get(WORD_PERPLEXITY), higher.measures.get(WORD_PERPLEXITY)
    if ours is None or theirs is None:
        return "–"
    if (tested := damage_difference(lower, higher)) is not None:
        return judge_difference(tested)
    a, b = (float(f"{shown.value:.4g}") for shown in (ours, theirs))
    return "undecided" if a == b or documents == 1 else "holds" if a < b else "does not hold"
