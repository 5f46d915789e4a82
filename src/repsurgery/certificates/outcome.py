"""`Outcome`: what a steering did in the model it was tuned for, on prompts that took no part in choosing it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from repsurgery.arrays import check_finite, check_integer
from repsurgery.cards import Card, Shown
from repsurgery.certificates.shown import outcome_card
from repsurgery.errors import DataError, ParameterError

__all__ = ["MEASURES", "Outcome"]

MEASURES = ("share", "mean")
"""The share of continuations with a score of at least 0.5, and the mean score."""

_ROUNDING = 1e-9
"""How far an effect may lie from the difference of its two values, and outside its interval."""
_TEXTS = ("judge", "judge_digest", "source", "target")
_SHARES = ("auc", "base", "steered", "p")
_COUNTS = ("prompts", "samples", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Shown):
    """The measured effect and price of a steering, as it is stored beside its maps.

    It belongs to the maps, the site, the strength, the positions and the model it was measured with; see
    `SteeringFunction.with_outcome`. It is a measurement, not a proof.

    Attributes
    ----------
    judge, judge_digest : str
        What scored the continuations: its name, and its digest, which is empty where it has none.
    auc : float or None
        How well the judge separates held-out texts of the two labels; None where this was not measured.
    measure : {"share", "mean"}
        The share of continuations with a score of at least 0.5, or the mean score.
    source, target : str
        The label whose share or score is measured, and the one that was steered to.
    base, steered : float
        The measure without and with steering.
    effect, low, high, p : float
        The measure with steering minus that without, its 95 % interval over prompts, and the p-value of its sign-flip
        test.
    kl : float
        The measured KL(base ‖ steered) in nats per token.
    wikitext_ratio : float or None
        The perplexity of WikiText with steering divided by that without; None where it was not measured.
    prompts, samples, tokens : int
        The number of prompts, of continuations of each prompt, and of tokens of each continuation at most.

    Guarantees
    ----------
    Numbers that contradict each other or cannot have been measured are refused
    (test_what_cannot_have_been_measured_is_refused).
    """

    judge: str
    judge_digest: str
    auc: float | None
    measure: str
    source: str
    target: str
    base: float
    steered: float
    effect: float
    low: float
    high: float
    p: float
    kl: float
    wikitext_ratio: float | None
    prompts: int
    samples: int
    tokens: int

    def __post_init__(self) -> None:
        for name in _TEXTS:
            text = getattr(self, name)
            if not isinstance(text, str) or not (text.strip() or name == "judge_digest"):
                raise ParameterError(f"The outcome's {name} is {text!r}; it must be a string that is not empty.")
        if self.measure not in MEASURES:
            raise ParameterError(f"The outcome's measure is {self.measure!r}; it must be one of {list(MEASURES)}.")
        for name in _COUNTS:
            object.__setattr__(self, name, check_integer(f"The outcome's {name}", getattr(self, name)))
        for name in ("auc", "base", "steered", "effect", "low", "high", "p", "kl", "wikitext_ratio"):
            value = getattr(self, name)
            if value is not None or name not in ("auc", "wikitext_ratio"):
                object.__setattr__(self, name, check_finite(f"The outcome's {name}", value))
        _require_possible(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Outcome":
        """Rebuild an outcome from `to_dict`; an unknown or missing name, or an impossible value, raises an error."""
        names = {field.name for field in fields(cls)}
        if not isinstance(plain, Mapping) or set(plain) != names:
            given = set(plain) if isinstance(plain, Mapping) else set()
            missing, unknown = sorted(names - given), sorted(map(str, given - names))
            found = f"; {missing[:3]} are missing and {unknown[:3]} are unknown" if given else ""
            raise DataError(f"An outcome has exactly the fields {sorted(names)}{found}. Measure it again.")
        return cls(**plain)

    def _card(self) -> Card:
        return outcome_card(self)

    def words(self) -> str:
        """Return effect and price as two sentences.

        Examples
        --------
        >>> import repsurgery as rs
        >>> names = dict(judge="minilm-judge", judge_digest="", auc=0.97, source="rude", target="courteous")
        >>> effect = dict(measure="share", base=0.63, steered=0.24, effect=-0.39, low=-0.45, high=-0.33, p=0.0002)
        >>> outcome = rs.Outcome(**names, **effect, kl=0.098, wikitext_ratio=1.04, prompts=60, samples=5, tokens=25)
        >>> first, second = outcome.words().split(". ")
        >>> first[:91]
        'On 60 prompts that took no part in choosing it, the share of continuations judged rude fell'
        >>> second
        'It costs .098 nats per token and raises the perplexity of WikiText by 4 %.'
        """
        share = self.measure == "share"
        what = f"the share of continuations judged {self.source}" if share else f"the mean score for {self.source}"
        before, after = (_percent(value) if share else _decimal(value) for value in (self.base, self.steered))
        how = "rose" if self.effect > 0 else "fell"
        moved = f"stayed at {before}" if before == after else f"{how} from {before} to {after}"
        change, low, high = ((_points if share else _change)(value) for value in (self.effect, self.low, self.high))
        auc = "" if self.auc is None else f", AUC {_decimal(self.auc, 2)}"
        return (
            f"On {self.prompts} prompt{'s'[: self.prompts > 1]} that took no part in choosing it, {what} {moved} "
            f"({change}{' points' if share else ''}, 95 % interval {low} to {high}, {_p(self.p)}; judged by "
            f"{self.judge}{auc}). It costs {_nats(self.kl)} per token{_wikitext(self.wikitext_ratio)}."
        )


def _require_possible(outcome: Outcome) -> None:
    """Raise a `DataError` where numbers are out of range or contradict each other."""
    again = "Measure it again, or load the original file."
    for name in _SHARES:
        value = getattr(outcome, name)
        if value is not None and not 0 <= value <= 1:
            raise DataError(f"The outcome's {name} is {value!r}; it must lie between 0 and 1. {again}")
    if outcome.kl < 0:
        raise DataError(f"The outcome's kl is {outcome.kl!r}; a divergence is not negative. {again}")
    if outcome.wikitext_ratio is not None and outcome.wikitext_ratio <= 0:
        raise DataError(f"The outcome's wikitext_ratio is {outcome.wikitext_ratio!r}; it must be positive. {again}")
    if not math.isclose(outcome.effect, outcome.steered - outcome.base, rel_tol=0, abs_tol=_ROUNDING):
        raise DataError(
            f"The outcome's effect is {outcome.effect!r}, and steered − base is {outcome.steered - outcome.base!r}; "
            f"they must be equal. {again}"
        )
    if not outcome.low - _ROUNDING <= outcome.effect <= outcome.high + _ROUNDING:
        raise DataError(
            f"The outcome's effect {outcome.effect!r} lies outside its interval [{outcome.low!r}, {outcome.high!r}]. "
            f"{again}"
        )


def _short(value: float) -> str:
    """Return a size with one decimal at most."""
    return f"{abs(value):,.1f}".removesuffix(".0")


def _signed(size: str, value: float) -> str:
    return size if not size.strip("0.") else f"{'−' if value < 0 else '+'}{size}"


def _percent(value: float) -> str:
    return f"{_short(100 * value)} %"


def _points(value: float) -> str:
    return _signed(_short(100 * value), value)


def _decimal(value: float, decimals: int = 3) -> str:
    return f"{abs(value):.{decimals}f}".removeprefix("0")


def _change(value: float) -> str:
    return _signed(_decimal(value), value)


def _p(value: float) -> str:
    return "p < .0001" if value < 0.0001 else f"p = {f'{value:.2g}'.removeprefix('0')}"


def _nats(value: float) -> str:
    return f"{_decimal(value)} nats" if value >= 0.0005 else "less than .001 nats" if value else "0 nats"


def _wikitext(ratio: float | None) -> str:
    if ratio is None:
        return ""
    change = _short(100 * (ratio - 1))
    if change == "0":
        return " and leaves the perplexity of WikiText as it is"
    if ratio >= 2:
        return f" and multiplies the perplexity of WikiText by {_short(ratio)}"
    return f" and {'raises' if ratio > 1 else 'lowers'} the perplexity of WikiText by {change} %"
