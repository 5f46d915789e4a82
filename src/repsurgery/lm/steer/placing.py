"""Steerings on a model: their site, strength and positions, and whether they belong there."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from torch import nn

from repsurgery.callers import warn_caller
from repsurgery.errors import FoldError, OriginWarning, ParameterError, SiteError
from repsurgery.lm.load.fingerprint import fingerprint
from repsurgery.lm.load.origin import architecture, model_name
from repsurgery.lm.sites.names import Site, resolve_site
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.lm.steer.placement import Placement, placements_in
from repsurgery.lm.steer.positions import Positions
from repsurgery.lm.steer.row_steering import as_steering
from repsurgery.origin import UNKNOWN, ChosenStrength, Origin
from repsurgery.steering.function import SteeringFunction
from repsurgery.steering.in_force import strength_in_force

__all__ = [
    "Compared",
    "compare_origin",
    "compare_weights",
    "items_of",
    "only_placement",
    "placements",
    "refuse_choices",
    "sites_of",
    "weight_placement",
]


@dataclass(frozen=True, slots=True, eq=False)
class Compared(Placement):
    """A placement that was compared with a model.

    The origin of its function holds the same choices and no model, so that placing it again gives no warning.

    Attributes
    ----------
    far : str
        A sentence, where the strength is more than twice the one at which the effect was measured; else empty.
    measured_kl : float or None
        What it costs at this strength in nats per token, from the price that was measured at its own; None where none
        was measured here.
    """

    far: str = ""
    measured_kl: float | None = None


def placements(
    model: nn.Module,
    sites: Any,
    *,
    strength: float | None,
    positions: Positions | None,
    scale: float = 1.0,
    caller: str = "steer",
) -> list[Compared]:
    """Return the site, strength and positions of each steering on ``model``, in the order in which they act.

    Parameters
    ----------
    model : nn.Module
    sites : mapping of site to steering, one steering whose origin names its site, a Placement, or a list of them
    strength, positions
        For all of them; None uses those that each origin names, else 1 and "all". Placements state their own.
    scale : float
        Multiplies the strength of each; see `Origin.effective_strength`.

    Warns
    -----
    ExtrapolationWarning
        See `strength_in_force`.
    OriginWarning
        Where a steering was fitted at another site, or on a model with another name or architecture. Weights are not
        compared here: see `compare_weights`.
    """
    placed = []
    for name, value in items_of(sites, caller):
        site = resolve_site(model, name)
        if isinstance(value, Placement):
            refuse_choices({"strength": strength, "positions": positions}, caller=caller)
            function, at = as_steering(value.function, caller=caller), value
        else:
            function = as_steering(value, caller=caller)
            at = Placement(function, name, strength, positions)
        origin = function.origin
        how = Origin(site=name, positions=at.positions)
        compare_origin(model, site, function)
        # what was measured holds where it was measured: at this site, strength and these positions
        here = how.use()[3:5] == origin.use()[3:5]
        force = strength_in_force(function, at.strength, scale)
        force.warn()
        chosen = ChosenStrength(force.strength)
        outcome = function.outcome if here and force.strength == origin.effective_strength() else None
        used = function.with_origin(how, strength=chosen).with_outcome(outcome)
        kl = _measured_kl(function, force.strength) if here else None
        placed.append(Compared(used, name, chosen, at.positions, force.far, kl))
    return placed


def refuse_choices(choices: Mapping[str, object], *, caller: str) -> None:
    """Raise an error where a call makes one of these ``choices`` (not None) beside a placement, which states it."""
    if given := [f"{name}={value!r}" for name, value in choices.items() if value is not None]:
        raise ParameterError(
            f"{caller} got {' and '.join(given)} beside a Placement, which states its own site, strength and "
            "positions. Pass placement.scaled(factor), or another one: lm.Placement(function, site, strength, "
            "positions)."
        )


def _measured_kl(function: SteeringFunction, strength: float) -> float | None:
    """Return the price at ``strength``; it is proportional to the square of the strength."""
    own = function.origin.effective_strength()
    return None if function.outcome is None or own == 0 else function.outcome.kl * (strength / own) ** 2


def only_placement(
    model: nn.Module, steering: Any, site: str | None, strength: float | None, scale: float, *, caller: str
) -> Compared:
    """Return the placement of one steering; placements at one site are composed to one.

    Raises
    ------
    FoldError
        They are at several sites.
    ParameterError
        They act behind gates or at different positions, so that no one map acts like them.
    """
    if placements_in(steering):
        refuse_choices({"site": site}, caller=caller)
        sites: Any = steering
    else:
        as_steering(steering, caller=caller)
        sites = steering if site is None else {site: steering}
    placed = placements(model, sites, strength=strength, scale=scale, positions=None, caller=caller)
    if len(places := list(dict.fromkeys(one.site for one in placed))) > 1:
        raise FoldError(
            f"{caller} takes placements at one site, and these are at {places}. Take one site after another."
        )
    if len(placed) == 1:
        return placed[0]
    together = reduce(lambda inner, outer: outer.after(inner), [one.function for one in placed])
    return replace(placed[0], function=together, strength=1.0, measured_kl=None)


def weight_placement(
    model: nn.Module, steering: Any, site: str | None, strength: float | None, scale: float, *, caller: str
) -> Compared:
    """Return the `only_placement` of what is to be written into weights, which act at every position."""
    placement = only_placement(model, steering, site, strength, scale, caller=caller)
    if placement.positions != "all":
        warn_caller(
            f"This steering is meant for positions={placement.positions!r}; weights act at every position. "
            "Steer with hooks (lm.steer) to use these positions only.",
            OriginWarning,
        )
    return placement


def sites_of(steering: Any) -> Any:
    """Return ``steering`` with its sites; a steering whose origin names no site is used at "final"."""
    if isinstance(steering, Mapping) or placements_in(steering):
        return steering
    return {as_steering(steering).origin.site or "final": steering}


def compare_weights(
    model: nn.Module, steerings: Sequence[Placement], *, weights: Callable[[], str] | None = None
) -> list[Placement]:
    """Compare the weights of ``model`` with those that each function was fitted on; return the placements.

    Weights are hashed once, and only where a steering's origin holds their fingerprint; their dtype does not matter.
    Where they agree, the model's name does not matter either; its configuration is compared by `placements`.
    ``weights`` returns their fingerprint where the caller keeps it.

    Warns
    -----
    OriginWarning
        Where the weights differ.
    """
    weights = weights or functools.cache(lambda: fingerprint(model, ignore_dtype=True))
    compared = []
    for one in steerings:
        function, origin = one.function, one.function.origin
        if not _comparable(model, origin):
            compared.append(one)
            continue
        if origin.fingerprint == weights():
            known = function.with_origin(model=model_name(model), fingerprint=None)
            # it was measured on these weights
            compared.append(replace(one, function=known.with_outcome(function.outcome)))
            continue
        if _fits(resolve_site(model, one.site), function):
            warn_caller(
                f"This steering was fitted on {_called(origin.model)}; {_called(model_name(model))} has different "
                "weights, so the maps may be meaningless there. Load the model it was fitted on, or fit again.",
                OriginWarning,
            )
        unknown = function.with_origin(model=None, configuration=None, fingerprint=None)
        compared.append(replace(one, function=unknown))
    return compared


def _comparable(model: nn.Module, origin: Origin) -> bool:
    # float16 and bfloat16 round differently, so float16 weights can be compared only with float16 weights
    dtype = str(getattr(model, "dtype", None)).removeprefix("torch.")
    half = "float16" in (dtype, origin.dtype) and dtype != origin.dtype
    return origin.fingerprint is not None and not half


def items_of(sites: Any, caller: str) -> list[tuple[str, Any]]:
    """Return the pairs of site and steering that ``sites`` names, or raise an error that shows how to name them."""
    if placed := placements_in(sites):
        return [(one.site, one) for one in placed]
    if isinstance(sites, Mapping) and sites:
        for site, value in sites.items():
            if isinstance(value, Placement):
                refuse_choices({"site": site}, caller=caller)
        return list(sites.items())
    if isinstance(sites, Mapping) or not hasattr(sites, "origin"):
        kind = "an empty mapping" if isinstance(sites, Mapping) else type(sites).__name__
        raise ParameterError(
            f"{caller} got {kind} for sites; it takes a mapping such as {{'final': steering}}, or a "
            "steering that was saved with its site."
        )
    site = as_steering(sites, caller=caller).origin.site
    if site is None:
        raise ParameterError(
            f"The origin of this {type(sites).__name__} names no site. Pass a site, as in {{'final': steering}}, or "
            "store one in a function or an estimator: steering.with_origin(site='final')."
        )
    return [(site, sites)]


def compare_origin(model: nn.Module, site: Site, function: SteeringFunction) -> None:
    """Warn where a steering was fitted at another site, or on a model of another name or configuration."""
    origin, name = function.origin, site.name
    if origin == UNKNOWN or not _fits(site, function):
        return  # another width raises an error elsewhere
    if origin.site is not None and not _same_place(model, origin.site, site):
        warn_caller(
            f"This steering was fitted at {origin.site!r} and is used at {name!r}, whose vectors differ. "
            f"Use it at {origin.site!r}, or fit it at {name!r}.",
            OriginWarning,
        )
    here, fitted_on = model_name(model), origin.model
    # a hub id and a folder of the same name count as the same model
    other_name = here and fitted_on and here.split("/")[-1] != fitted_on.split("/")[-1]
    other_configuration = origin.configuration is not None and architecture(model) not in (None, origin.configuration)
    if other_name or other_configuration:
        what = "a different model" if other_name else "a model of another configuration"
        warn_caller(
            f"This steering was fitted on {_called(fitted_on)}; {_called(here)} is {what}, so the maps may be "
            "meaningless there. Load the model it was fitted on, or fit again.",
            OriginWarning,
        )


def _fits(site: Site, function: SteeringFunction) -> bool:
    return site.width is None or site.width == function.dim


def _same_place(model: nn.Module, name: str, site: Site) -> bool:
    try:
        named = resolve_site(unwrapped(model), name)
    except SiteError:
        return False
    return (named.path, named.side) == (site.path, site.side)


def _called(name: str | None) -> str:
    return "a model without a name" if name is None else repr(name)
