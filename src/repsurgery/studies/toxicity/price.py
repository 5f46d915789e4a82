"""The price of a steering in nats per token, predicted before a text is written."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import repsurgery as rs
from repsurgery import lm
from repsurgery.lm.generate.generate import Generation
from repsurgery.price.fisher import budget_strength
from repsurgery.studies.toxicity.generators import GeneratorContext
from repsurgery.studies.toxicity.steps import read_steps, spread_out

__all__ = ["Price", "read_price"]

PRICED = 500
"""Continuations whose steps give the Fisher matrix and the vectors on which a steering is priced."""


@dataclass(frozen=True, slots=True, eq=False)
class Price:
    """The Fisher matrix at one site, and steps (n, d) of the untouched model's own continuations.

    `rs.Fisher.kl` needs only moments, but not of a gated function; the steps themselves price any function.
    """

    fisher: rs.Fisher
    steps: NDArray[np.float32]

    def kl(self, function: rs.SteeringFunction) -> float:
        """Return the predicted KL(base ‖ steered): ½ E‖F^½(s(h) − h)‖² over the steps."""
        return self.fisher.kl_on(function, self.steps)

    def strength(self, function: rs.SteeringFunction, budget: float) -> float:
        """Return the strength at which ``function`` is predicted to cost ``budget``."""
        return budget_strength(budget, self.kl(function))


def read_price(context: GeneratorContext, generations: Sequence[Generation], site: str) -> Price:
    """Return the price at ``site`` on continuations of the untouched model."""
    some = spread_out(generations, PRICED)
    fisher = lm.fisher(
        context.model, context.tokenizer, some, sites=[site], progress=False, work_dir=context.work / "fisher"
    )
    return Price(fisher[site], np.concatenate(read_steps(context, some, site)))
