"""Checks of a steering function: that its maps, gate and classes are consistent with each other."""

from typing import TYPE_CHECKING

import numpy as np

from repsurgery.arrays import Label, check_labels
from repsurgery.certificates import Outcome
from repsurgery.errors import LabelError, ParameterError, ShapeError
from repsurgery.gates import Gate
from repsurgery.gates.base import checked_weights
from repsurgery.origin import Origin

if TYPE_CHECKING:
    from repsurgery.steering.function import SteeringFunction

__all__ = ["labels_behind", "require_consistent", "several_maps_behind"]


def require_consistent(f: "SteeringFunction") -> None:
    """Raise where a steering function cannot have these fields; the label None is that of a map for every class."""
    if not f.maps:
        raise ParameterError("A steering function needs at least one map.")
    if f.gate.reads == "nothing" and len(f.maps) > 1:
        raise ParameterError(
            f"gate='always' steers every vector by one map, but there are {len(f.maps)} "
            f"(for {list(f.maps)}). Name one source, or choose a gate that distinguishes them."
        )
    if len(f.maps) > 1 and not f.gate.hard and _weights_per_row(f.gate, f.dim) != len(f.gate.classes):
        raise several_maps_behind(f)
    if not isinstance(f.origin, Origin):
        raise ParameterError(f"origin is a {type(f.origin).__name__}; it must be an Origin.")
    if f.outcome is not None and not isinstance(f.outcome, Outcome):
        raise ParameterError(f"outcome is a {type(f.outcome).__name__}; it must be an Outcome, or None.")
    widths = {m.dim for m in f.maps.values()} | {f.gate.dim or f.dim}
    if len(widths) > 1:
        raise ShapeError(f"Maps and gate have different numbers of features: {sorted(widths)}. Use one site for all.")
    labels = [label for label in f.maps if label is not None]
    if labels and None in f.maps:
        raise ParameterError(f"A map for every class must be the only one; there are others for {labels}.")
    for names in (labels, list(f.classes)):
        if names and len(check_labels(names, len(names), caller="SteeringFunction")[0]) < len(names):
            raise LabelError(f"Some of the labels {names} are equal. Rename them.")
    unknown = [label for label in (*labels, *f.gate.classes) if f.classes and label not in f.classes]
    if unknown:
        raise LabelError(f"Maps or gate name the classes {unknown}, which are not among {list(f.classes)}.")


def several_maps_behind(f: "SteeringFunction") -> ParameterError:
    """Return the error of several maps behind a gate with a single weight."""
    return ParameterError(
        f"A soft gate has one strength for one map, but there are {len(f.maps)} (for {list(f.maps)}). "
        "Name one source, or choose a gate that distinguishes them."
    )


def labels_behind(f: "SteeringFunction", gate: Gate, source: Label | None) -> list[Label | None]:
    """Return the class that each map of ``f`` serves behind ``gate``, where ``source`` names that of a single map."""
    labels, classes = list(f.maps), list(gate.classes)
    if source is not None and len(labels) > 1:
        raise ParameterError(
            f"This function has maps for {labels}, and each keeps its class behind a gate. Leave source out."
        )
    if source is None and labels == [None] and not _steers_one_map(gate, f.dim):
        raise ParameterError(
            f"This function has one map for every class, which a {gate.kind} gate would not stop. Name the class that "
            f"it steers with source=, one of {classes or list(f.classes)}, or use a gate with a single weight, such as "
            "a SoftGate."
        )
    served: list[Label | None] = labels if source is None else [source]
    unknown = [label for label in served if classes and label is not None and label not in classes]
    if unknown:
        raise LabelError(
            f"The gate has the classes {classes}; the maps steer {unknown}. Fit the gate on the same labels, or, for "
            "one map, name the class of the gate that it steers with source=."
        )
    return served


def _steers_one_map(gate: Gate, dim: int) -> bool:
    return gate.reads == "nothing" or (not gate.hard and _weights_per_row(gate, dim) == 1)


def _weights_per_row(gate: Gate, dim: int) -> int:
    return len(checked_weights(gate, np.zeros((1, gate.dim or dim))).T)
