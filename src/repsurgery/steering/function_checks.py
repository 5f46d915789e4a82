"""Checks of a steering function: that its maps, gate and classes are consistent with each other."""

from typing import TYPE_CHECKING

from repsurgery.arrays import check_labels
from repsurgery.certificates import Outcome
from repsurgery.errors import LabelError, ParameterError, ShapeError
from repsurgery.gates import AlwaysGate, SoftGate
from repsurgery.origin import Origin

if TYPE_CHECKING:
    from repsurgery.steering.function import SteeringFunction

__all__ = ["require_consistent"]


def require_consistent(f: "SteeringFunction") -> None:
    """Raise where a steering function cannot have these fields; the label None is that of a map for every class."""
    if not f.maps:
        raise ParameterError("A steering function needs at least one map.")
    if isinstance(f.gate, AlwaysGate) and len(f.maps) > 1:
        raise ParameterError(
            f"gate='always' steers every vector by one map, but there are {len(f.maps)} "
            f"(for {list(f.maps)}). Name one source, or choose a gate that distinguishes them."
        )
    if isinstance(f.gate, SoftGate) and len(f.maps) > 1:
        raise ParameterError(
            f"A soft gate has one strength for one map, but there are {len(f.maps)} (for {list(f.maps)}). "
            "Name one source, or choose a gate that distinguishes them."
        )
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
