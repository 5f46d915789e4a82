"""Steer a live model inside a ``with`` block, and restore it afterwards."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, get_args

import torch
from torch import nn

from repsurgery.errors import ParameterError, PassError, ShapeError
from repsurgery.lm.sites.names import Site, resolve_site
from repsurgery.lm.sites.wrappers import SteeredModel, behind, unwrapped
from repsurgery.lm.steer.block import Block
from repsurgery.lm.steer.budget import budgeted_strength
from repsurgery.lm.steer.forward_context import ForwardContext
from repsurgery.lm.steer.hooks import Visit, attach
from repsurgery.lm.steer.opening import opened
from repsurgery.lm.steer.placing import placements, sites_of
from repsurgery.lm.steer.positions import ANY_POSITION, Positions
from repsurgery.lm.steer.row_steering import RowSteering, as_steering

__all__ = ["Threads", "optional_steer", "prepare", "steer"]

Threads = Literal["own", "all"]
"""``own``: passes of the thread that entered the block. ``all``: passes of every thread."""


@contextmanager
def steer(
    model: nn.Module,
    sites: Any,
    *,
    strength: float | None = None,
    scale: float = 1.0,
    kl_budget: float | None = None,
    fisher: Any = None,
    moments: Any = None,
    share: Any = None,
    positions: Positions | None = None,
    threads: Threads = "own",
) -> Iterator[Any]:
    """Steer ``model`` while the block runs, in plain forward passes and in every mode of ``generate``.

    Parameters
    ----------
    model : nn.Module
        A transformers decoder, encoder or encoder-decoder, in float32, bfloat16, float16 or float64, on any devices.
        It may be wrapped by PEFT, `torch.compile`, data parallelism or a module of your own.
    sites : mapping of site name to a fitted estimator, a SteeringFunction or an AffineMap; or `Placement` values
        Placements, one or a list in the order in which they act, state site, strength and positions themselves.
        Estimators and steering functions steer through their gate, which decides for each token from its incoming
        state; a bare map steers every token. `resolve_site` explains the names. A single steering whose origin names
        its site may be passed without a mapping.
    strength : float or None
        0 leaves the states unchanged, 1 applies the map, and 0.5 goes half of the way. None uses the strength that the
        origin of each steering names, else 1.
    scale : float
        Multiplies the strength in force, which is the one above: 1 leaves a file as it was tuned, 2 steers twice as
        strongly, 0 not at all, and a negative number the other way.
    kl_budget : float or None
        Instead of ``strength`` and ``scale``: a predicted KL(base ‖ steered) in nats per token, from which the strength
        follows. Several sites share the budget at one strength; cross terms between sites are ignored.
    fisher : Fisher, mapping of site to Fisher, or None
        For ``kl_budget``, see `lm.fisher`. None uses what is stored with each steering, see `lm.price`.
    moments : Moments, ClassMoments, mapping of site to one of them, or None
    share : float, mapping of site to float, or None
        For ``kl_budget`` of maps other than shifts, and of gated functions: see `Fisher.kl`. Several sites need
        mappings of site to value.
    positions : {"all", "generated", "prompt", "last", "assistant"} or None
        None uses the positions that the origin of each steering names, else ``all``.
        ``all``: every position. ``prompt``: those of the prompt. ``last``: the last prompt position only.
        ``generated``: the last prompt position and every later one, that is every position that predicts a new token.
        ``assistant``: the same for every answer of a conversation, the earlier ones in the prompt too; only where
        `lm.generate` continues conversations, because nothing else knows whose turn a token belongs to.
        Padding and the virtual tokens of prompt tuning are never steered. In ``generate`` the prompt is the input of
        the call, with and without cache. Functions that score texts (`lm.kl_divergence`, `lm.log_likelihoods` and
        others) steer the positions that ``generate`` would steer, or refuse positions that they cannot know. In any
        other forward pass the whole input is the prompt.
    threads : {"own", "all"}
        ``own`` steers the passes of the thread that entered the block (and of threads that PyTorch starts for them);
        other threads use the same model unsteered, or under blocks of their own. ``all`` steers the passes of every
        thread, which ``Thread(target=model.generate)`` inside the block needs.

    Yields
    ------
    SteeredModel
        The model, with two attributes that belong to this block: ``visits`` (number of passes by site) and
        ``steered_share`` (share of the positions that the gate assigned to a map, by site; behind a soft gate the mean
        strength).

    Raises
    ------
    SteeringError
        At the end of the block, where no pass went through a site or other code removed its hook. If the block ends in
        another error, a `SteeringWarning` is issued instead.
    PassError
        In a pass whose mask, cache or prompt cannot be interpreted; ``positions="all"`` still works, unless there may
        be padding.

    Notes
    -----
    Maps are computed in float32 (float64 for float64 models) and cast back to the dtype of the state. Nested blocks
    compose in the order in which they were entered: an inner block receives the output of the outer one. While any
    block is open, compiled models run their original Python code, because a compiled graph calls no hook.

    Warns
    -----
    ExtrapolationWarning
        Above twice the strength at which the effect of a steering was measured; and outside of [0, 1], where neither a
        measurement nor a price chose the strength.
    OriginWarning
        Where a steering was fitted at another site, or on a model with another name or configuration.

    Guarantees
    ----------
    The steered state is map(h) (test_the_steered_state_is_the_map_of_the_state).
    Cached and uncached generation agree (test_cached_and_uncached_generation_agree).
    Padding is never touched (test_padding_is_never_touched).
    Compiled and eager models agree (test_a_compiled_model_is_steered_like_an_eager_one).
    Each thread gets its own steering (test_every_thread_gets_its_own_steering).
    A saved steering uses the site, strength and positions of its file, unless the caller gives others
    (test_a_steering_acts_where_its_origin_says, test_the_caller_replaces_what_the_origin_says).
    A scale acts like the strength in force times that scale (test_a_scale_multiplies_the_strength_in_force).
    Afterwards the model is bit-identical, also when the block raised (test_the_model_is_bit_identical_afterwards).
    """
    if threads not in get_args(Threads):
        raise ParameterError(f"threads is {threads!r}; it must be one of {list(get_args(Threads))}.")
    inner = unwrapped(model)
    budget = {"kl_budget": kl_budget, "fisher": fisher, "moments": moments, "share": share}
    strength = budgeted_strength(sites, strength=strength, scale=scale, positions=positions, **budget)
    placed = placements(inner, sites, strength=strength, scale=scale, positions=positions)
    jobs = [(*prepare(inner, p.site, p.function, p.strength), p) for p in placed]
    note = "; ".join(f"{site.name} {digest} {p.strength} {p.positions}" for site, _, digest, p in jobs)
    block = Block(note, [site.name for site, *_ in jobs], everywhere=threads == "all")
    with opened(model, block) as context:
        for i, (site, rows, _, place) in enumerate(jobs):
            # a pass counts once, however many steerings it meets at a site
            first = all(site.name != other.name for other, *_ in jobs[:i])
            visit = _visit(context, block, site.name, rows, place.positions, counted=first)
            block.handles.append(attach(site, visit, holds=block.applies_at(site.name)))
        yield SteeredModel(behind(model), block)


def optional_steer(
    model: nn.Module,
    steering: Any,
    *,
    strength: float | None,
    positions: Positions | None,
    scale: float = 1.0,
    **budget: Any,
) -> AbstractContextManager[object]:
    """Return the block that steers ``model``: an empty one for None, else `steer`, by default at "final"."""
    if steering is None:
        return nullcontext()
    return steer(model, sites_of(steering), strength=strength, scale=scale, positions=positions, **budget)


def site_of_width(model: nn.Module, name: str, features: int | None) -> Site:
    """Return the site called ``name``, where a map of this many features may act; None: any number."""
    site = resolve_site(model, name)
    if None not in (site.width, features) and features != site.width:
        raise ShapeError(
            f"The map for site {name!r} has {features} features; {type(model).__name__} has {site.width} there. "
            "Fit it on vectors extracted at this site of this model."
        )
    return site


def prepare(model: nn.Module, name: str, value: Any, strength: float) -> tuple[Site, RowSteering, str]:
    """Return the site called ``name``, the steering of rows there and its digest, once their widths were compared."""
    steering = as_steering(value)
    site = site_of_width(model, name, steering.dim)
    at_strength = steering if strength == 1 else steering.at(strength)
    return site, RowSteering(at_strength, name=f"Steering at {name!r} (strength {strength:g})"), steering.digest()


def _visit(
    context: ForwardContext, block: Block, name: str, rows: RowSteering, positions: Positions, *, counted: bool
) -> Visit:
    def visit(state: torch.Tensor) -> torch.Tensor | None:
        if counted:
            block.count_visit(name)
        selected = _selected(context, state, positions)
        if selected is False:
            return None
        flat = state.reshape(-1, state.shape[-1])
        if selected is True:
            moved, gated = rows.counted(flat)
            block.count_rows(name, flat.shape[0], gated)
            return moved.view(state.shape)
        index = selected.to(state.device).reshape(-1).nonzero().squeeze(1)
        moved, gated = rows.counted(flat[index])
        block.count_rows(name, index.shape[0], gated)
        return flat.index_copy(0, index, moved).view(state.shape)

    return visit


def _selected(context: ForwardContext, state: torch.Tensor, positions: Positions) -> torch.Tensor | bool:
    forward = context.current
    if forward is None and context.repeats_a_foreign_pass():
        raise PassError(
            "The backward pass reruns a checkpointed layer whose forward was made outside this steering block. "
            "Call forward and backward() inside the same block."
        )
    if forward is None and positions != "all":
        raise PassError(
            f"This module was called on its own, outside a pass of its model, so positions={positions!r} cannot be "
            f"located. {ANY_POSITION}"
        )
    if forward is None:
        return True
    if forward.doubt is None:
        forward.require_vectors(state)
    return forward.selected(positions)
