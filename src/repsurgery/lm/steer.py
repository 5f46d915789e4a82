"""Steer a live model inside a ``with`` block, and leave it as it was found."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from repsurgery.errors import ShapeError
from repsurgery.lm.placing import placed
from repsurgery.lm.positions import Positions
from repsurgery.lm.rows import RowSteering, as_steering
from repsurgery.lm.sites import Site, resolve_site, unwrapped
from repsurgery.lm.states import Visit, attach
from repsurgery.lm.watch import Watch, watching

__all__ = ["prepare", "steer"]


@contextmanager
def steer(
    model: nn.Module,
    sites: Any,
    *,
    strength: float | None = None,
    positions: Positions | None = None,
) -> Iterator[nn.Module]:
    """Steer ``model`` while the block runs: plain forward passes and ``generate`` in every mode.

    Parameters
    ----------
    model : nn.Module
        A transformers decoder or encoder, in float32, bfloat16, float16 or float64, on any devices.
    sites : mapping of site name to a fitted estimator, a SteeringFunction or an AffineMap
        Estimators and steering functions steer through their gate, which decides for each token from the state as
        it arrives; a bare map steers every token. Names are those of `resolve_site`. Or one steering alone, whose
        origin names its site.
    strength : float or None
        0 leaves the states untouched, 1 is the map; in between lies the geodesic. None is what the origin of each
        steering asks for, else 1.
    positions : {"all", "generated", "prompt", "last"} or None
        None is what the origin of each steering asks for, else ``all``.
        ``all``: every position. ``prompt``: the prompt's. ``last``: the last prompt position only. ``generated``: the
        last prompt position and every later one, that is every position that predicts a new token. Padding is never
        touched. In a plain forward the whole input is the prompt; in ``generate`` the prompt's length is that of the
        call's input, with and without cache.

    Yields
    ------
    nn.Module
        The same model.

    Notes
    -----
    Maps are computed in float32 (float64 for float64 models) and cast back to the dtype of the state. Nested blocks
    compose in the order in which they were entered: an inner block meets what the outer one left.

    Warns
    -----
    OriginWarning
        Where a steering was fitted at another site, or on a model of another name or configuration.

    Guarantees
    ----------
    The steered state is map(h) (test_the_steered_state_is_the_map_of_the_state).
    Cached and uncached generation agree (test_cached_and_uncached_generation_agree).
    Padding is never touched (test_padding_is_never_touched).
    A saved steering acts where, how strongly and at which positions its file says, unless the caller says otherwise
    (test_a_steering_acts_where_its_origin_says, test_the_caller_replaces_what_the_origin_says).
    Afterwards the model is bit-identical, also when the block raised (test_the_model_is_bit_identical_afterwards).
    """
    inner = unwrapped(model)
    places = placed(inner, sites, strength=strength, positions=positions)
    jobs = [(*prepare(inner, p.site, p.steering, p.strength), p) for p in places]
    note = "; ".join(f"{site.name} {digest} {p.strength} {p.positions}" for site, _, digest, p in jobs)
    with ExitStack() as stack:
        watch = stack.enter_context(watching(inner, note))
        for site, rows, _, place in jobs:
            handle = attach(site, _visit(watch, rows, place.positions))
            stack.callback(handle.remove)
        yield model


def prepare(model: nn.Module, name: str, value: Any, strength: float) -> tuple[Site, RowSteering, str]:
    """Return the site called ``name``, the steering of rows there and its digest, having made sure they fit."""
    site = resolve_site(model, name)
    steering = as_steering(value)
    if site.width is not None and steering.dim != site.width:
        raise ShapeError(
            f"The map for site {name!r} has {steering.dim} features; {type(model).__name__} has {site.width} there. "
            "Fit it on vectors extracted at this site of this model."
        )
    at_strength = steering if strength == 1 else steering.interpolate(strength)
    return site, RowSteering(at_strength, name=f"Steering at {name!r} (strength {strength:g})"), steering.digest()


def _visit(watch: Watch, rows: RowSteering, positions: Positions) -> Visit:
    def visit(state: torch.Tensor) -> torch.Tensor | None:
        flat = state.reshape(-1, state.shape[-1])
        chosen = _chosen(watch, state, positions)
        if chosen is False:
            return None
        if chosen is True:
            return rows(flat).view(state.shape)
        index = chosen.to(state.device).reshape(-1).nonzero().squeeze(1)
        return flat.index_copy(0, index, rows(flat[index])).view(state.shape)

    return visit


def _chosen(watch: Watch, state: torch.Tensor, positions: Positions) -> torch.Tensor | bool:
    forward = watch.current
    if forward is not None and state.numel() == state.shape[-1] * forward.batch * forward.length:
        return forward.wanted(positions)
    if forward is not None:
        raise ShapeError(
            f"A state of shape {tuple(state.shape)} does not hold one vector for each of {forward.batch} x "
            f"{forward.length} tokens. Steer a module that returns (batch, length, d)."
        )
    # the module was called on its own: everything it was given is a prompt without padding
    if positions in ("all", "prompt"):
        return True
    last = torch.zeros(state.shape[:-1], dtype=torch.bool)
    last[..., -1] = True
    return last
