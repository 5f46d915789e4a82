"""`Request`: everything that a search is asked for."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repsurgery.errors import ParameterError
from repsurgery.tuning.plan import Budget, Measure, Plan

if TYPE_CHECKING:
    from repsurgery.lm.fold.targets import TargetName

__all__ = ["Request", "check_minutes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The arguments of `tune`, checked as far as that is possible without reading anything.

    Attributes
    ----------
    columns : pair of str
        The columns of texts and labels.
    deadline : float
        Of `time.monotonic`.
    work : path
        The folder of finished work.
    """

    texts: Any
    columns: tuple[str, str]
    source: str
    target: str
    prompts: Any
    chat: bool
    model: str
    device: str | None
    dtype: str | None
    budget: Budget
    scorer: Any
    others: tuple[str, ...]
    measure: Measure | None
    plan: Plan
    sites: tuple[str, ...] | None
    export_to: "TargetName | None"
    deadline: float
    seed: int
    data_dir: str | os.PathLike[str] | None
    work: Path
    progress: bool
    announce: Callable[[str], None]

    def __post_init__(self) -> None:
        if self.measure not in (None, "share", "mean"):
            raise ParameterError(f"measure is {self.measure!r}; it must be 'share', 'mean' or None.")
        if self.source == self.target:
            raise ParameterError(f"source and target are both {self.source!r}; steering needs two labels.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ParameterError(f"seed is {self.seed!r}; it must be a whole number of at least 0.")


def check_minutes(minutes: float | None) -> float:
    """Return ``minutes`` as a float, and infinity for None."""
    if minutes is None:
        return math.inf
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not minutes >= 0:
        raise ParameterError(f"minutes is {minutes!r}; it must be a number of at least 0.")
    return float(minutes)
