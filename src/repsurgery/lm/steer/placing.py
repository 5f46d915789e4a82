"""Where a steering acts, how strongly and at which positions: what the caller says, else what its origin says."""

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from repsurgery.errors import OriginWarning, ParameterError, SiteError
from repsurgery.lm.load.fingerprint import fingerprint
from repsurgery.lm.load.origin import architecture, model_name
from repsurgery.lm.sites.names import Site, resolve_site, unwrapped
from repsurgery.lm.steer.positions import Positions, check_positions
from repsurgery.lm.steer.row_steering import as_steering
from repsurgery.origin import UNKNOWN, Origin
from repsurgery.steering.function import SteeringFunction

__all__ = ["Placement", "place", "placed", "settled", "sites_of", "weighed"]


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A steering at its site.

    Attributes
    ----------
    site : str
    steering : SteeringFunction
        As fitted; its origin holds these same choices and no model, so that it can be placed again without a question.
    strength : float
    positions : {"all", "generated", "prompt", "last"}
    """

    site: str
    steering: SteeringFunction
    strength: float
    positions: Positions


def placed(
    model: nn.Module, sites: Any, *, strength: float | None, positions: Positions | None, caller: str = "steer"
) -> list[Placement]:
    """Return where and how each steering acts on ``model``.

    Parameters
    ----------
    model : nn.Module
    sites : mapping of site to steering, or one steering whose origin names its site
    strength, positions
        For all of them; None is what the origin of each says, else 1 and "all".

    Warns
    -----
    OriginWarning
        Where a steering was fitted at another site, or on a model of another name or architecture. Weights are not
        looked at: see `weighed`.
    """
    if positions is not None:
        check_positions(positions)
    found = []
    for name, value in _items(sites, caller):
        site, function = resolve_site(model, name), as_steering(value, caller=caller)
        origin = function.origin
        how = Origin(
            site=name,
            strength=_first(strength, origin.strength, 1.0),
            positions=_first(positions, origin.positions, "all"),
        )
        _compare(model, site, function)
        found.append(Placement(name, function.with_origin(how), how.strength, how.positions))  # type: ignore[arg-type]
    return found


def place(model: nn.Module, steering: Any, site: str | None, strength: float | None, *, caller: str) -> Placement:
    """Return the place of one steering that weights are to hold: they act at every position."""
    as_steering(steering, caller=caller)
    (found,) = placed(model, steering if site is None else {site: steering}, strength=strength, positions=None)
    if found.positions != "all":
        warnings.warn(
            f"This steering is meant for positions={found.positions!r}; weights act at every position. "
            "Steer with hooks (lm.steer) to keep to them.",
            OriginWarning,
            stacklevel=3,
        )
    return found


def sites_of(steering: Any) -> Any:
    """Return ``steering`` as `placed` takes it; one that knows no site steers "final"."""
    if isinstance(steering, Mapping):
        return steering
    return {as_steering(steering).origin.site or "final": steering}


def settled(
    model: nn.Module, steering: Any, *, strength: float | None = None, positions: Positions | None = None
) -> dict[str, SteeringFunction]:
    """Return sites and steerings that `placed` takes again and again without comparing or warning anew."""
    found = placed(model, sites_of(steering), strength=strength, positions=positions)
    return {placement.site: placement.steering for placement in found}


def weighed(model: nn.Module, steerings: Sequence[tuple[str, SteeringFunction]]) -> list[SteeringFunction]:
    """Return the steering of each (site, steering), once all weights of ``model`` were compared with those of the fit.

    Weights are hashed once, and only where a steering states theirs; their dtype does not matter. Where they are the
    same, the model's name does not matter either; its configuration is compared by `placed`.

    Warns
    -----
    OriginWarning
        Where the weights are others.
    """
    weights = functools.cache(lambda: fingerprint(model, ignore_dtype=True))
    found = []
    for name, function in steerings:
        origin = function.origin
        if not _comparable(model, origin):
            found.append(function)
            continue
        if origin.fingerprint == weights():
            found.append(function.with_origin(model=model_name(model), fingerprint=None))
            continue
        if _fits(resolve_site(model, name), function):
            warnings.warn(
                f"This steering was fitted on {_called(origin.model)}; {_called(model_name(model))} has different "
                "weights, so the maps may mean nothing there. Load the model it was fitted on, or fit again.",
                OriginWarning,
                stacklevel=3,
            )
        found.append(function.with_origin(model=None, configuration=None, fingerprint=None))
    return found


def _comparable(model: nn.Module, origin: Origin) -> bool:
    # float16 rounds to other neighbours than bfloat16 does, so only its own kind can be recognised
    dtype = str(getattr(model, "dtype", None)).removeprefix("torch.")
    half = "float16" in (dtype, origin.dtype) and dtype != origin.dtype
    return origin.fingerprint is not None and not half


def _items(sites: Any, caller: str) -> list[tuple[str, Any]]:
    if isinstance(sites, Mapping) and sites:
        return list(sites.items())
    if isinstance(sites, Mapping) or not hasattr(sites, "origin"):
        came = "an empty mapping" if isinstance(sites, Mapping) else type(sites).__name__
        raise ParameterError(
            f"{caller} got {came} for sites; it takes a mapping such as {{'final': steering}}, or a "
            "steering that was saved with its site."
        )
    site = as_steering(sites, caller=caller).origin.site
    if site is None:
        raise ParameterError(
            f"This {type(sites).__name__} does not know its site. Name it, as in {{'final': steering}}; a function or "
            "an estimator can also be told: steering.with_origin(site='final')."
        )
    return [(site, sites)]


def _compare(model: nn.Module, site: Site, function: SteeringFunction) -> None:
    origin, name = function.origin, site.name
    if origin == UNKNOWN or not _fits(site, function):
        return  # another width is refused, not warned of
    if origin.site is not None and not _same_place(model, origin.site, site):
        warnings.warn(
            f"This steering was fitted at {origin.site!r} and is used at {name!r}, whose vectors differ. "
            f"Use it at {origin.site!r}, or fit it at {name!r}.",
            OriginWarning,
            stacklevel=5,
        )
    here, its = model_name(model), origin.model
    # a hub id and a folder of the same name are one model, as far as names can tell
    other_name = here is not None and its is not None and here.split("/")[-1] != its.split("/")[-1]
    other_build = origin.configuration is not None and architecture(model) not in (None, origin.configuration)
    if other_name or other_build:
        what = "a different model" if other_name else "a model of another configuration"
        warnings.warn(
            f"This steering was fitted on {_called(its)}; {_called(here)} is {what}, so the maps may mean nothing "
            "there. Load the model it was fitted on, or fit again.",
            OriginWarning,
            stacklevel=5,
        )


def _fits(site: Site, function: SteeringFunction) -> bool:
    return site.width is None or site.width == function.dim


def _same_place(model: nn.Module, name: str, site: Site) -> bool:
    try:
        known = resolve_site(unwrapped(model), name)
    except SiteError:
        return False
    return (known.path, known.side) == (site.path, site.side)


def _called(name: str | None) -> str:
    return "a model without a name" if name is None else repr(name)


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)
