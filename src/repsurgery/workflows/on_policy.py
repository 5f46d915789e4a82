"""Fit a steering on what the model itself writes, in one round or several."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import repsurgery as rs
from repsurgery import lm
from repsurgery.arrays import check_integer
from repsurgery.checkpoint import digest
from repsurgery.errors import DataError, OptionsError
from repsurgery.lm.chat import ChatText, Conversation, as_text
from repsurgery.lm.load.folder import cache_root
from repsurgery.lm.load.models import DEFAULT_MODEL
from repsurgery.lm.steer.early import check_places
from repsurgery.lm.steer.positions import Positions
from repsurgery.origin import IN_CHAT
from repsurgery.steering.base import BaseSteering
from repsurgery.workflows.fit import make_estimator
from repsurgery.workflows.prompts import speaks_in_chat

__all__ = ["OnPolicyFit", "Round", "fit_on_policy"]


PRICED = 200
"""Unsteered texts, approximately, along which the price of a steering is measured."""


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One round: what the model wrote under the steering so far, and what was fitted on it.

    Attributes
    ----------
    estimator : BaseSteering
        Its certificate describes its own map, on the states that the earlier rounds had already steered.
    counts : mapping
        Texts and steps in each class, see `lm.OnPolicy`.
    mean_score : float
        The mean score of all texts of the round that have one.
    """

    estimator: BaseSteering
    counts: Mapping[str, Mapping[str, int]]
    mean_score: float


@dataclass(frozen=True, slots=True, eq=False)
class OnPolicyFit:
    """The steering of all rounds together.

    Attributes
    ----------
    steering : SteeringFunction
        The composition of the maps of all rounds, with its origin. After one round it carries the certificate of that
        round. After several it carries none: each certificate describes the map of its own round on states that the
        earlier rounds had steered, and nobody has measured the composed map on unsteered states.
    rounds : tuple of Round
    """

    steering: rs.SteeringFunction
    rounds: tuple[Round, ...]


def fit_on_policy(
    prompts: Sequence[str | Conversation],
    scorer: Any,
    *,
    method: str = "mean",
    rounds: int = 1,
    model: str = DEFAULT_MODEL,
    device: str | None = None,
    dtype: str | None = None,
    site: str = "final",
    params: Mapping[str, Any] | None = None,
    strength: float | None = None,
    positions: Positions | None = None,
    licence: str | None = None,
    store_fisher: bool = False,
    seed: int = 0,
    progress: bool = True,
    work_dir: str | os.PathLike[str] | None = None,
    **writing: Any,
) -> OnPolicyFit:
    """Return a steering fitted on the steps of the model's own texts.

    Round r lets the model write under the composed maps of the rounds before, labels the steps, fits a map T_r on the
    steered states, and composes: h ↦ T_r(... T₁(h)). It draws with the seed ``seed`` + r − 1, so that no round sees the
    noise to which an earlier map was fitted.

    Parameters
    ----------
    prompts : sequence of str or conversations
    scorer : function of a list of texts
        See `lm.on_policy`.
    method : str
        A name of `repsurgery.steering.base.METHODS`.
    rounds : int
    model, device, dtype
        See `lm.load`.
    site : str
    params : mapping of str to value, or None
        Parameters of the estimator: gate ("always" unless another one is named), shrinkage, ridge. The labels are
        fixed: "source" is steered to "target".
    strength, positions, licence
        Written to the origin as advice for later use; every round writes at strength 1 and at all positions.
    store_fisher : bool
        Store the Fisher matrix at ``site`` along unsteered texts of the first round, so that ``kl_budget`` needs
        nothing else later; see `lm.price`.
    seed : int
    progress : bool
    work_dir : path or None
        The folder in which interrupted work is resumed; None: one in the cache.
    writing
        Further arguments of `lm.on_policy`: samples, credit, source_at, target_at, step_at, max_new_tokens, ...

    Guarantees
    ----------
    The composed map is the composition of the rounds, as nested steering blocks apply it
    (test_rounds_compose_as_nested_steering_does).
    """
    rounds = check_integer("rounds", rounds)
    template = _template(method, params or {}, rounds)
    check_places(model, [(site, None)])
    network, tokenizer = lm.load(model, device=device, dtype=dtype)
    work = cache_root() / "on-policy" if work_dir is None else Path(work_dir)
    facts = {name: str(getattr(scorer, name, None)) for name in ("name", "version", "digest")}
    origin = lm.origin_of(
        network,
        site=site,
        data=digest({"prompts": list(prompts), "scorer": facts}),
        pooling=f"generated{IN_CHAT}" if speaks_in_chat(prompts) else None,
        **rs.Origin(strength=strength, positions=positions, licence=licence).known(),
    )
    composed: rs.SteeringFunction | None = None
    finished = []
    for index in range(rounds):
        how: dict[str, Any] = {"seed": seed + index, "progress": progress, "work_dir": work, **writing}
        try:
            written = lm.on_policy(
                *(network, tokenizer, prompts, scorer),
                sites=[site],
                steering=None if composed is None else {site: composed},
                **how,
            )
        except DataError as error:
            if index == 0:
                raise
            raise DataError(f"Round {index + 1} of {rounds}: {error} Or stop before it: rounds={index}.") from error
        estimator = template().fit_moments(written[site])
        composed = estimator.steering_ if composed is None else estimator.steering_.after(composed)
        if index == 0:
            own = written.generations
        scores = [score for score in written.scores if score is not None]
        finished.append(Round(estimator, written.counts, sum(scores) / len(scores)))
    assert composed is not None
    if store_fisher:
        chosen = own[:: max(1, len(own) // PRICED)]
        some: Any = chosen if positions == "generated" else [_whole(g) for g in chosen]
        how = {"site": site, "positions": "generated" if positions == "generated" else "all", "progress": progress}
        composed = composed.with_price(lm.price(network, tokenizer, some, composed, **how))
    return OnPolicyFit(composed.with_origin(origin), tuple(finished))


def _whole(g: lm.Generation) -> str:
    """Return a prompt with its continuation, which in a chat is the assistant's message."""
    if not isinstance(g.prompt, ChatText):
        return g.prompt + g.text
    messages = list(g.prompt.messages)
    begun = messages.pop()["content"] if g.prompt.answered else ""
    return as_text(
        [*messages, {"role": "assistant", "content": begun + g.text}] if (begun + g.text).strip() else messages
    )


def _template(method: str, params: Mapping[str, Any], rounds: int) -> Any:
    """Return a function that makes a fresh estimator from source to target."""
    fixed = [name for name in ("source", "target") if name in params]
    if fixed:
        raise OptionsError(
            f"params name {' and '.join(fixed)}; on-policy moments have the labels 'source' and 'target'. Leave it out."
        )
    known = make_estimator(method, {}).get_params()
    labels = {name: name for name in ("source", "target") if name in known}
    given = {**({"gate": "always"} if "gate" in known else {}), **labels, **params}
    gate = given.get("gate", "always")
    if rounds > 1 and gate != "always":
        raise OptionsError(
            f"gate is {gate!r} with {rounds} rounds; behind a gate the rounds do not compose to one map. Choose "
            "gate='always', or one round."
        )
    make_estimator(method, given)
    return lambda: make_estimator(method, given)
