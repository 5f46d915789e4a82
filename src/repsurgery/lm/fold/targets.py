"""Which exports hold a steering at a site of a model exactly, and what each of them takes."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from torch import nn

from repsurgery.affine import AffineMap
from repsurgery.errors import FoldError, SurgeryError
from repsurgery.exporters import EXPORTERS, ExportTarget
from repsurgery.lm.fold.gguf import is_translation
from repsurgery.lm.steer.placement import Placement
from repsurgery.lm.steer.placing import only_placement

__all__ = ["ExportTarget", "TargetName", "checked_target", "export_targets", "nearest_targets"]

TargetName: TypeAlias = str
"""A name in `EXPORTERS`."""


def export_targets(
    model: nn.Module,
    steering: Any,
    site: str | None = None,
    *,
    strength: float | None = None,
    scale: float = 1.0,
) -> dict[TargetName, ExportTarget]:
    """Return, for each target, whether it holds ``steering`` at ``site`` of ``model`` exactly.

    Parameters
    ----------
    model : nn.Module
    steering : AffineMap, SteeringFunction, fitted estimator or placements
    site, strength, scale
        As for `fold`.

    Returns
    -------
    dict of str to ExportTarget
        In the order "folder", "lora", "gguf", then the exports of plugins. Hooks (`steer`) hold everything.

    Raises
    ------
    ShapeError, SiteError
        Where the steering does not belong at that site.

    Guarantees
    ----------
    A target is refused here where its writer refuses it, and holds what it writes
    (test_the_targets_are_those_that_write_and_agree).
    A plugin that breaks its protocol is left out with a warning that names it
    (test_an_exporter_that_breaks_its_protocol_is_named_and_left_out).
    """
    at = only_placement(model, steering, site, strength, scale, caller="export_targets")
    checked = {name: checked_target(name, at, model) for name in EXPORTERS}
    return {name: target for name, target in checked.items() if target is not None}


def checked_target(name: TargetName, at: Placement, model: nn.Module) -> ExportTarget | None:
    """Return what the export ``name`` makes of a placement; None, after a warning, where a plugin breaks down."""
    exporter = EXPORTERS[name]
    if name in EXPORTERS.own():
        return exporter.check(at, model)
    try:
        target = exporter.check(at, model)
        problem = "" if isinstance(target, ExportTarget) else f"check returned {target!r:.60}, not an ExportTarget"
    except FoldError as error:
        return ExportTarget(name, str(error))
    except SurgeryError:
        raise
    except Exception as error:  # foreign code must not stop the other exports
        problem = f"check raised {type(error).__name__}: {error}"
    if problem:
        EXPORTERS.warn_of(name, problem)
        return None
    return target


def nearest_targets(targets: Mapping[TargetName, ExportTarget], wanted: TargetName, m: AffineMap) -> list[ExportTarget]:
    """Return the targets that hold the map ``m``, the nearest to ``wanted`` first.

    A control vector is nearest to an adapter where the map is in the way, and to a folder where the site is.
    """
    order = ["folder", "lora", "gguf"] if is_translation(m) or wanted != "gguf" else ["lora", "folder"]
    order += [name for name in targets if name not in order]
    return [targets[name] for name in order if name != wanted and targets[name].holds]
