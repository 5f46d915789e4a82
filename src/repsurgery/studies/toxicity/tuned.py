"""`TunedLine`: a configuration line that states a price and lets a search choose the steering."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_args

from repsurgery.errors import DataError, ParameterError
from repsurgery.tuning.plan import Effort, Plan, plan_of_effort
from repsurgery.tuning.prompts import LEAST, PromptSplit

__all__ = ["TUNED", "TunedLine", "parse_tuned_line"]

TUNED = "tuned"
"""The first word of such a line."""


@dataclass(frozen=True, slots=True)
class TunedLine:
    """A price; the search of `repsurgery.tuning` chooses site, method, fit, shrinkage, scope and strength.

    Attributes
    ----------
    kl : float or None
        The highest price: KL(base ‖ steered) in nats per token of the model's own continuations of training prompts.
    file : str or None
        Instead of a price: a steering file that ``repsurgery tune`` wrote, used as it states.
    wikitext : float or None
        The highest ratio of WikiText perplexities, such as 1.05.
    effort : {"quick", "normal", "thorough"}
        How much is written and how many candidates are considered.
    minutes : float or None
        No further candidate is measured after so many minutes.
    """

    kl: float | None = None
    file: str | None = None
    wikitext: float | None = None
    effort: str = "normal"
    minutes: float | None = None

    @property
    def name(self) -> str:
        """The line that `parse_tuned_line` reads; options that have their default are left out."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        words = (f"{k}={value:.15g}" if isinstance(value, float) else f"{k}={value}" for k, value in values.items())
        return " ".join([TUNED, *words])

    @property
    def choices(self) -> dict[str, Any]:
        """What the line states, as it stands in a record."""
        stated = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"method": TUNED, **{name: value for name, value in stated.items() if value is not None}}

    @property
    def plan(self) -> Plan:
        """The sizes of the search."""
        return plan_of_effort(self.effort)

    def split(self, prompts: Sequence[str]) -> PromptSplit:
        """Return the training prompts to write and to search on, the first ones; the study itself confirms.

        Fewer prompts than the effort asks for are divided in its proportions.
        """
        plan = self.plan
        share = min(1.0, len(prompts) / (plan.writing + plan.search))
        writing, search = int(share * plan.writing), int(share * plan.search)
        if writing < LEAST["writing"] or search < LEAST["search"]:
            raise DataError(
                f"{self.name!r} has {len(prompts)} training prompts: {writing} to write on and {search} to compare "
                f"candidates on. It needs at least {LEAST['writing']} and {LEAST['search']}; raise policy_prompts, or "
                "add prompts."
            )
        return PromptSplit(tuple(prompts[:writing]), tuple(prompts[writing : writing + search]), ())


def parse_tuned_line(words: str) -> TunedLine:
    """Read ``"tuned kl=… name=value ..."``."""
    values: dict[str, Any] = {}
    for pair in words.split()[1:]:
        name, separator, text = pair.partition("=")
        if not separator or name not in _NEEDED or name in values:
            options = ", ".join(f"{option}=…" for option in _NEEDED)
            raise ParameterError(
                f"{words!r} contains {pair!r}; after {TUNED!r} come {options}, once each. The search chooses method, "
                "scope, fit, site and strength itself."
            )
        values[name] = _value(words, name, text)
    if "file" in values and len(values) > 1:
        raise ParameterError(f"{words!r} names a file, which was tuned already. Leave out the other options.")
    if not {"kl", "file"} & values.keys():
        raise ParameterError(f"{words!r} has no price; a search needs one. Write '{TUNED} kl=0.1'.")
    return TunedLine(**values)


_NEEDED: Mapping[str, tuple[float, str]] = {
    "kl": (0.0, "a number of nats per token above 0, such as 0.1"),
    "file": (math.nan, "the path of a steering file"),
    "wikitext": (1.0, "a ratio of perplexities above 1, such as 1.05 for at most 5 % more"),
    "effort": (math.nan, f"one of {', '.join(get_args(Effort))}"),
    "minutes": (0.0, "a number of minutes above 0"),
}
"""For each option, the number that it must exceed, and what it must be in words."""


def _value(words: str, name: str, text: str) -> Any:
    above, needed = _NEEDED[name]
    if (name == "effort" and text in get_args(Effort)) or (name == "file" and text):
        return text
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not above < value < math.inf:
        raise ParameterError(f"{words!r} has {name} {text!r}; it must be {needed}.")
    return value
