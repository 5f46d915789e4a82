"""How much a demonstration reads and writes."""

from dataclasses import dataclass

__all__ = ["FULL", "QUICK", "Scale"]


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of a run.

    Attributes
    ----------
    fitted, held_out : int
        Texts per class, for fitting and for judging the fit.
    prompts, samples, tokens : int
        Prompts, continuations of each, and new tokens in each.
    neutral : int
        Neutral texts on which the divergence from the base is measured.
    """

    fitted: int
    held_out: int
    prompts: int
    samples: int
    tokens: int
    neutral: int


FULL = Scale(fitted=200, held_out=60, prompts=15, samples=3, tokens=20, neutral=4)
"""Under five minutes on two cores that have other work too."""
QUICK = Scale(fitted=60, held_out=20, prompts=4, samples=2, tokens=10, neutral=2)
"""A look at the whole in about a minute; its numbers mean little."""
