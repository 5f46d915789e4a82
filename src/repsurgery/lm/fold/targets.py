"""Which exports hold a steering at a site of a model exactly, and what each of them takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from repsurgery.affine import AffineMap
from repsurgery.errors import FoldError
from repsurgery.lm.fold.fold import fold_target
from repsurgery.lm.fold.fold_points import FoldPoint, require_plain, single_map
from repsurgery.lm.fold.gguf import control_vector, is_translation
from repsurgery.lm.fold.lora import place_of_constant
from repsurgery.lm.fold.lora_factors import constant_of, lora_point, low_rank
from repsurgery.lm.fold.weights import is_tied
from repsurgery.lm.steer.placing import only_placement

__all__ = ["TARGETS", "ExportTarget", "TargetName", "export_targets", "nearest_targets"]

TargetName = Literal["folder", "lora", "gguf"]
TARGETS: tuple[TargetName, ...] = ("folder", "lora", "gguf")


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """What one target makes of a steering.

    Attributes
    ----------
    name : {"folder", "lora", "gguf"}
        A folded model (`fold`), an adapter (`to_lora`) or a control vector (`to_gguf`).
    refusal : str
        A sentence that says why the target cannot hold the steering exactly; empty where it can.
    condition : str
        What holding it takes: a folder may be one that "needs custom code". An adapter always attaches, and it may be
        one that "merges with biases", which an option of the configuration adds to the base, that "merges untied", once
        its layer no longer shares its weight with the embeddings, or that "does not merge". Otherwise empty.
    """

    name: TargetName
    refusal: str = ""
    condition: str = ""

    @property
    def holds(self) -> bool:
        """Whether the target holds the steering exactly."""
        return not self.refusal


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
        In the order "folder", "lora", "gguf". Hooks (`steer`) hold everything.

    Raises
    ------
    ShapeError, SiteError
        Where the steering does not belong at that site.

    Guarantees
    ----------
    A target is refused here where its writer refuses it, and holds what it writes
    (test_the_targets_are_those_that_write_and_agree).
    """
    at = only_placement(model, steering, site, strength, scale, caller="export_targets")
    try:
        require_plain(model)
        if at.positions != "all":
            raise FoldError(f"This steering is for positions={at.positions!r}, and an export acts at every position.")
        m = single_map(at.function, at.strength, caller="export_targets")
    except FoldError as error:
        return {name: ExportTarget(name, _first_sentence(error)) for name in TARGETS}
    conditions = {"folder": _folder, "lora": _lora, "gguf": _gguf}
    return {name: _target(name, conditions[name], model, m, at.site) for name in TARGETS}


def nearest_targets(targets: Mapping[TargetName, ExportTarget], wanted: TargetName, m: AffineMap) -> list[ExportTarget]:
    """Return the targets that hold the map ``m``, the nearest to ``wanted`` first.

    A control vector is nearest to an adapter where the map is in the way, and to a folder where the site is.
    """
    order: dict[TargetName, tuple[TargetName, ...]] = {
        "folder": ("lora", "gguf"),
        "lora": ("folder", "gguf"),
        "gguf": ("folder", "lora") if is_translation(m) else ("lora", "folder"),
    }
    return [targets[name] for name in order[wanted] if targets[name].holds]


def _target(
    name: TargetName, condition: Callable[[nn.Module, AffineMap, str], str], model: nn.Module, m: AffineMap, site: str
) -> ExportTarget:
    try:
        return ExportTarget(name, condition=condition(model, m, site))
    except FoldError as error:
        return ExportTarget(name, _first_sentence(error))


def _folder(model: nn.Module, m: AffineMap, site: str) -> str:
    point = fold_target(model, m, site)
    return "needs custom code" if _place(model, point, m) == "adapter" else ""


def _lora(model: nn.Module, m: AffineMap, site: str) -> str:
    point = lora_point(model, m, site)
    if low_rank(m) is None:
        raise FoldError(f"A − I of this {m.kind} map has full rank, so no small adapter equals it.")
    place = _place(model, point, m)
    if place == "adapter":
        return "does not merge"
    if is_tied(model, f"{point.path}.weight"):
        return "merges untied"
    return "merges with biases" if place == "switch" else ""


def _gguf(model: nn.Module, m: AffineMap, site: str) -> str:
    control_vector(model, m, site)
    return ""


def _place(model: nn.Module, point: FoldPoint, m: AffineMap) -> str:
    layer = model.get_submodule(point.path)
    return place_of_constant(model, point, constant_of(layer, point, m), "merge")


def _first_sentence(error: FoldError) -> str:
    """Return the reason of a refusal; the sentences after it name ways out in Python."""
    return f"{str(error).partition('. ')[0].removesuffix('.')}."
