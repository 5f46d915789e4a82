"""Which step of a text deserves its score, and which class each step belongs to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Vector
from repsurgery.errors import ParameterError
from repsurgery.lm.generate.generate import Generation, continuation_text
from repsurgery.lm.policy.scores import Scores

__all__ = ["CLASSES", "Codes", "Credit", "Rule", "prefix_scores"]

Credit = Literal["text", "step"]
"""``text``: every step takes the class of its text. ``step``: every step has a class of its own."""
Codes = NDArray[np.intp]
"""The class of each step of a text, as an index into `CLASSES`; -1: the step is left out."""
CLASSES = ("source", "target")
SOURCE, TARGET, LEFT_OUT = 0, 1, -1


def prefix_scores(scores: Scores, tokenizer: Any, generations: Sequence[Generation], *, progress: bool) -> list[Vector]:
    """Return, per text of T tokens, the score of its first 0, 1, ..., T tokens, (T + 1,); no score counts as 0.

    Many prefixes are equal as texts, because a token may add nothing visible; each distinct one is scored once.
    """
    prefixes = [
        [continuation_text(tokenizer, g.prompt_tokens, g.tokens[:t]) for t in range(len(g.tokens) + 1)]
        for g in generations
    ]
    found = iter(scores.of([text for row in prefixes for text in row], progress=progress, label="scoring prefixes"))
    return [np.array([next(found) or 0.0 for _ in row]) for row in prefixes]


@dataclass(frozen=True, slots=True)
class Rule:
    """How steps get their class; `on_policy` explains the parameters.

    With ``credit="step"`` the class of a step depends only on the text up to its token, which is all that the state at
    the step can know of. The steps of a toxic text before its first toxic word are then in the class "target".
    """

    credit: Credit
    source_at: float
    target_at: float
    step_at: float

    def __post_init__(self) -> None:
        if self.credit not in get_args(Credit):
            raise ParameterError(f"credit is {self.credit!r}; it must be one of {list(get_args(Credit))}.")
        for name in ("source_at", "target_at", "step_at"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
                raise ParameterError(f"{name} is {value!r}; it must be a finite number, a score of the scorer.")
        if self.credit == "text" and self.target_at > self.source_at:
            raise ParameterError(
                f"target_at is {self.target_at} and source_at is {self.source_at}; target_at must not be the "
                "larger one, so that no text belongs to both classes."
            )
        if self.step_at <= 0:
            raise ParameterError(f"step_at is {self.step_at}; it must be above 0, the credit of most steps.")

    def of_text(self, g: Generation, score: float | None) -> Codes:
        """Return the class of each step of ``g`` by the score of the whole text."""
        code = LEFT_OUT
        if score is not None and score >= self.source_at:
            code = SOURCE
        elif score is not None and score <= self.target_at:
            code = TARGET
        return np.full(len(g.tokens) + g.finished, code)

    def of_steps(self, g: Generation, prefixes: Vector) -> Codes:
        """Return the class of each step of ``g`` by the scores (T + 1,) of its prefixes."""
        # the end token adds nothing to the text
        known = np.append(prefixes, prefixes[-1:]) if g.finished else prefixes
        change, so_far = np.diff(known), known[1:]
        clean = (np.abs(change) < self.step_at) & (so_far <= self.target_at)
        return np.where(change >= self.step_at, SOURCE, np.where(clean, TARGET, LEFT_OUT))

    def explained(self) -> dict[str, str]:
        """Return, per class, what belongs to it, for messages."""
        if self.credit == "text":
            return {"source": f"score from {self.source_at} on", "target": f"score up to {self.target_at}"}
        return {
            "source": f"a step of credit {self.step_at} or more",
            "target": f"a step of credit below {self.step_at} in size and a score so far of up to {self.target_at}",
        }

    def thresholds(self) -> str:
        """Return the names of the thresholds that decide, for messages."""
        return "source_at and target_at" if self.credit == "text" else "step_at and target_at"
