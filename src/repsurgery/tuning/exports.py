"""Where a steering is to be shipped limits what a search considers: an export holds some maps at some sites."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import nn

from repsurgery.affine import Translation
from repsurgery.errors import FoldError, ParameterError
from repsurgery.exporters import EXPORTERS
from repsurgery.lm.fold.targets import TargetName, checked_target, export_targets
from repsurgery.lm.sites.names import resolve_site
from repsurgery.lm.steer.placing import only_placement
from repsurgery.steering.function import SteeringFunction

__all__ = ["DEPTHS", "check_target", "exports_of", "refusal", "sites_held"]

DEPTHS = (0.8, 1.0)
"""Layers to consider where "final" cannot be exported, as shares of the depth of the model."""


def check_target(export_to: str | None) -> None:
    """Raise an error unless ``export_to`` is None or the name of an export."""
    names = EXPORTERS.names()
    if export_to is not None and export_to not in names:
        raise ParameterError(f"export_to is {export_to!r}; it must be one of {list(names)} or None.")


def refusal(model: nn.Module, function: SteeringFunction, site: str, export_to: TargetName | None) -> str:
    """Return why an export cannot hold a steering function at ``site`` exactly; nothing where it can."""
    if export_to is None:
        return ""
    target = checked_target(export_to, only_placement(model, function, site, 1.0, 1.0, caller="tune"), model)
    if target is None:
        raise ParameterError(
            f"The export {export_to!r} cannot be used; the warning above says why. Choose another one."
        )
    if target.condition == "needs custom code":
        return f"A plain folder has no place for the constant of the map at {site!r}."
    return target.refusal


def sites_held(model: nn.Module, sites: Iterable[str], export_to: TargetName, *, named: bool) -> tuple[str, ...]:
    """Return the sites at which an export holds a shift, the simplest map.

    Raises
    ------
    FoldError
        There is none, or the user has ``named`` one at which it does not.
    """
    refusals: dict[str, str] = {}
    for site in sites:
        width = resolve_site(model, site).width
        # the width of other modules is not known before they run; their candidates are checked one by one
        shift = None if width is None else SteeringFunction({None: Translation(np.ones(width))})
        refusals[site] = "" if shift is None else refusal(model, shift, site, export_to)
    held = tuple(site for site, reason in refusals.items() if not reason)
    if not held or (named and len(held) < len(refusals)):
        site, reason = next((site, reason) for site, reason in refusals.items() if reason)
        raise FoldError(
            f"An export to {export_to} cannot hold a steering at {site!r}: {reason} Name sites that can, such as "
            "layers.15, or leave out the export and serve the steering with hooks: repsurgery serve."
        )
    return held


def exports_of(model: nn.Module, function: SteeringFunction, site: str) -> dict[str, dict[str, Any]]:
    """Return for each export whether it holds a steering function at ``site``, and its refusal or condition."""
    targets = export_targets(model, function, site, strength=1.0)
    return {name: {"holds": one.holds, "note": one.refusal or one.condition} for name, one in targets.items()}
