"""Continuations of prompts without steering and with each of several saved steerings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from repsurgery import lm
from repsurgery.lm.chat import ChatText, Conversation, as_text
from repsurgery.lm.generate.generate import Generation
from repsurgery.lm.load.models import DEFAULT_MODEL
from repsurgery.lm.steer.early import check_places
from repsurgery.lm.steer.placement import Placement
from repsurgery.workflows.prompts import speaks_in_chat
from repsurgery.workflows.steerings import SteeringFile, recognised

__all__ = ["Compared", "Comparison", "SteeredSteps", "compare", "steered_steps"]


@dataclass(frozen=True, slots=True)
class Compared:
    """One sample of one prompt.

    Attributes
    ----------
    prompt : str
    sample : int
    texts : tuple of str
        The continuation of the unsteered model, then one per steering, all drawn with the same random numbers.
    """

    prompt: str
    sample: int
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SteeredSteps:
    """How many of the steps that generated a token were steered.

    Attributes
    ----------
    steered : float
        The number of steered steps; behind a soft gate, the sum of the strengths of all steps.
    steps : int
    soft : bool
        Whether the gate is soft.
    """

    steered: float
    steps: int
    soft: bool = False

    @property
    def words(self) -> str:
        """A phrase that gives the share, or the mean strength behind a soft gate.

        A share that is neither nothing nor everything is not rounded to it.
        """
        if self.soft:
            return (
                f"steered the {self.steps} generated steps with a mean gate strength of {self.steered / self.steps:.3g}"
            )
        percent = 100 * self.steered / self.steps
        edge = "less than 1" if 0 < percent < 0.5 else "more than 99" if 99.5 <= percent < 100 else f"{percent:.0f}"
        return f"steered {edge} % of the {self.steps} generated steps"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare` returns.

    Attributes
    ----------
    rows : list of Compared
        In order of prompt and sample.
    steps : list of SteeredSteps
        Those of each steering, in order.
    """

    rows: list[Compared]
    steps: list[SteeredSteps]


def compare(
    steerings: Sequence[SteeringFile],
    prompts: Sequence[str | Conversation],
    *,
    model: str = DEFAULT_MODEL,
    device: str | None = None,
    dtype: str | None = None,
    progress: bool = True,
    **sampling: Any,
) -> Comparison:
    """Return the continuations of ``model`` without steering and with each steering.

    Parameters
    ----------
    steerings : sequence of SteeringFile
        See `open_steerings`; each steers alone.
    prompts : sequence of str or conversations
    model, device, dtype
        See `lm.load`.
    progress : bool
    **sampling
        Arguments of `lm.generate`: n, max_new_tokens, seed.

    Warns
    -----
    ExtrapolationWarning
        As `lm.steer`.
    OriginWarning
        A steering was fitted at another site, on a model with other weights, or in a chat and is used without one, or
        the other way round.
    """
    for one in steerings:
        one.warn_about_strength()
        one.warn_about_chat(chat=speaks_in_chat(prompts))
    check_places(model, [(one.placement.site, one.placement.function.dim) for one in steerings])
    network, tokenizer = lm.load(model, device=device, dtype=dtype)

    def written(steering: Any) -> list[Generation]:
        return lm.generate(network, tokenizer, prompts, steering=steering, progress=progress, **sampling)

    placed = [one.placement for one in recognised(steerings, network)]
    columns = [written(None), *(written(one) for one in placed)]
    rows = [
        Compared(_shown(row[0].prompt), row[0].sample, tuple(g.text for g in row)) for row in zip(*columns, strict=True)
    ]
    steps = [
        steered_steps(network, tokenizer, column, one, progress=progress)
        for one, column in zip(placed, columns[1:], strict=True)
    ]
    return Comparison(rows, steps)


def _shown(prompt: str) -> str:
    return as_text(prompt.messages) if isinstance(prompt, ChatText) else prompt


def steered_steps(
    model: nn.Module, tokenizer: Any, generations: Sequence[Generation], placement: Placement, *, progress: bool = True
) -> SteeredSteps:
    """Return how many steps of ``generations`` were steered by ``placement``, under which they were written.

    A step is a position that predicted a token, the end token included; behind a soft gate it counts by its strength.
    The counts of `lm.steer` are different: they include the prompt, and finished texts that wait for the rest of their
    batch. Where a gate decides, the states are read again, because a state at the site of a steering does not depend on
    that steering.

    Guarantees
    ----------
    The count is that of the hook over the same steps (test_the_share_is_that_of_the_hook_without_prompt_and_waiting).
    """
    function = placement.function
    steps = [len(g.tokens) + g.finished for g in generations]
    soft = not function.gate.hard
    if placement.strength == 0:
        return SteeredSteps(0, sum(steps), soft)
    # of the positions that predict a token, the first is also the last one of the prompt
    eligible = [1] * len(steps) if placement.positions in ("prompt", "last") else steps
    if function.steers_all:
        return SteeredSteps(sum(eligible), sum(steps))
    states = lm.states_along(model, tokenizer, generations, site=placement.site, progress=progress)
    steered = sum(float(function.weights(X[:n]).sum()) for X, n in zip(states, eligible, strict=True))
    return SteeredSteps(steered if soft else int(steered), sum(steps), soft)
