"""`ToxicityScorer`: what every scorer of texts offers."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

__all__ = ["ToxicityScorer"]


@runtime_checkable
class ToxicityScorer(Protocol):
    """A frozen function from texts to toxicity.

    Scores compare only within one scorer, so a figure is always given with its ``name``, ``version`` and ``digest``.
    """

    @property
    def name(self) -> str:
        """Return what the scorer is called."""

    @property
    def version(self) -> str:
        """Return the version of the package that holds its weights."""

    @property
    def digest(self) -> str:
        """Return the SHA-256 of its weights."""

    def __call__(self, texts: Sequence[str]) -> list[float | None]:
        """Return one score in [0, 1] per text, in order; None where there is nothing to score."""
