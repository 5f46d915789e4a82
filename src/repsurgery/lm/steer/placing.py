"""The site, strength and positions of a steering: those that the caller gives, else those that its origin names."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from repsurgery.callers import warn_caller
from repsurgery.errors import OriginWarning, ParameterError, SiteError
from repsurgery.lm.load.fingerprint import fingerprint
from repsurgery.lm.load.origin import architecture, model_name
from repsurgery.lm.sites.names import Site, resolve_site
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.lm.steer.positions import Positions, check_positions
from repsurgery.lm.steer.row_steering import as_steering
from repsurgery.origin import UNKNOWN, ChosenStrength, Origin
from repsurgery.steering.function import SteeringFunction
from repsurgery.steering.in_force import strength_in_force

__all__ = [
    "Placement",
    "compare_origin",
    "compare_weights",
    "fixed_sites",
    "items_of",
    "placements",
    "sites_of",
    "weight_placement",
]


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A steering at its site.

    Attributes
    ----------
    site : str
    steering : SteeringFunction
        As fitted; its origin holds these same choices and no model, so that placing it again gives no warning.
    strength : float
    positions : {"all", "generated", "prompt", "last", "assistant"}
    far : str
        A sentence, where the strength is more than twice the one at which the effect was measured; else empty.
    measured_kl : float or None
        What it costs at this strength in nats per token, from the price that was measured at its own; None where none
        was measured here.
    """

    site: str
    steering: SteeringFunction
    strength: float
    positions: Positions
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
) -> list[Placement]:
    """Return the site, strength and positions of each steering on ``model``.

    Parameters
    ----------
    model : nn.Module
    sites : mapping of site to steering, or one steering whose origin names its site
    strength, positions
        For all of them; None uses those that each origin names, else 1 and "all".
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
    if positions is not None:
        check_positions(positions)
    placed = []
    for name, value in items_of(sites, caller):
        site, function = resolve_site(model, name), as_steering(value, caller=caller)
        origin = function.origin
        how = Origin(site=name, positions=positions or origin.positions or "all")
        compare_origin(model, site, function)
        # what was measured holds where it was measured: at this site, strength and these positions
        here = how.use()[3:5] == origin.use()[3:5]
        force = strength_in_force(function, strength, scale)
        force.warn()
        how = how.revised(strength=ChosenStrength(force.strength))
        outcome = function.outcome if here and force.strength == origin.effective_strength() else None
        used = function.with_origin(how).with_outcome(outcome)
        kl = _measured_kl(function, force.strength) if here else None
        placed.append(Placement(name, used, force.strength, how.positions, force.far, kl))  # type: ignore[arg-type]
    return placed


def _measured_kl(function: SteeringFunction, strength: float) -> float | None:
    """Return the price at ``strength``; it is proportional to the square of the strength."""
    own = function.origin.effective_strength()
    return None if function.outcome is None or own == 0 else function.outcome.kl * (strength / own) ** 2


def weight_placement(
    model: nn.Module, steering: Any, site: str | None, strength: float | None, scale: float, *, caller: str
) -> Placement:
    """Return the placement of a steering that is to be written into weights, which act at every position."""
    as_steering(steering, caller=caller)
    sites = steering if site is None else {site: steering}
    (placement,) = placements(model, sites, strength=strength, scale=scale, positions=None)
    if placement.positions != "all":
        warn_caller(
            f"This steering is meant for positions={placement.positions!r}; weights act at every position. "
            "Steer with hooks (lm.steer) to use these positions only.",
            OriginWarning,
        )
    return placement


def sites_of(steering: Any) -> Any:
    """Return ``steering`` as a mapping of sites; a steering whose origin names no site is used at "final"."""
    if isinstance(steering, Mapping):
        return steering
    return {as_steering(steering).origin.site or "final": steering}


def fixed_sites(
    model: nn.Module, steering: Any, *, strength: float | None = None, positions: Positions | None = None
) -> dict[str, SteeringFunction]:
    """Return a mapping of sites that can be used repeatedly without comparisons or warnings."""
    placed = placements(model, sites_of(steering), strength=strength, positions=positions)
    return {placement.site: placement.steering for placement in placed}


def compare_weights(
    model: nn.Module,
    steerings: Sequence[tuple[str, SteeringFunction]],
    *,
    weights: Callable[[], str] | None = None,
) -> list[SteeringFunction]:
    """Compare the weights of ``model`` with those that each (site, steering) was fitted on; return the steerings.

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
    for name, function in steerings:
        origin = function.origin
        if not _comparable(model, origin):
            compared.append(function)
            continue
        if origin.fingerprint == weights():
            known = function.with_origin(model=model_name(model), fingerprint=None)
            compared.append(known.with_outcome(function.outcome))  # it was measured on these weights
            continue
        if _fits(resolve_site(model, name), function):
            warn_caller(
                f"This steering was fitted on {_called(origin.model)}; {_called(model_name(model))} has different "
                "weights, so the maps may be meaningless there. Load the model it was fitted on, or fit again.",
                OriginWarning,
            )
        compared.append(function.with_origin(model=None, configuration=None, fingerprint=None))
    return compared


def _comparable(model: nn.Module, origin: Origin) -> bool:
    # float16 and bfloat16 round differently, so float16 weights can be compared only with float16 weights
    dtype = str(getattr(model, "dtype", None)).removeprefix("torch.")
    half = "float16" in (dtype, origin.dtype) and dtype != origin.dtype
    return origin.fingerprint is not None and not half


def items_of(sites: Any, caller: str) -> list[tuple[str, Any]]:
    """Return the pairs of site and steering that ``sites`` names, or raise an error that shows how to name them."""
    if isinstance(sites, Mapping) and sites:
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
