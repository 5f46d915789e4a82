"""Maps, gates and steering functions as files."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from repsurgery.affine import AffineMap
from repsurgery.affine.maps import from_arrays
from repsurgery.arrays import Label
from repsurgery.certificates import Certificate
from repsurgery.errors import FileFormatError, LabelError
from repsurgery.files import Contents, built_from
from repsurgery.gates import Gate
from repsurgery.gates.rules import gate_from_arrays
from repsurgery.origin import Origin
from repsurgery.steering.function import SteeringFunction

__all__ = ["KINDS", "from_contents", "to_contents"]

KINDS = ("map", "gate", "steering-function")


def to_contents(value: AffineMap | Gate | SteeringFunction) -> Contents:
    """Return the file form of a map, a gate or a steering function."""
    match value:
        case AffineMap():
            return Contents("map", {"kind": value.kind}, value.arrays())
        case Gate():
            return Contents("gate", {"kind": value.kind, "classes": list(value.classes)}, value.arrays())
        case SteeringFunction():
            arrays, header = value.parts(saving=True)
            certificate = value.certificate.to_dict() if value.certificate else None
            # what is not known is not written: such a file is the same as ever, bit for bit
            origin = {"origin": known} if (known := value.origin.known()) else {}
            return Contents("steering-function", {**header, "certificate": certificate, **origin}, arrays)
    raise FileFormatError(f"Cannot save a {type(value).__name__}; save a map, a gate, a steering function or moments.")


def from_contents(contents: Contents) -> AffineMap | Gate | SteeringFunction:
    """Rebuild what a file holds; arrays that do not fit together are refused."""
    with built_from(f"a {contents.kind}"):
        match contents.kind:
            case "map":
                return from_arrays(contents.header["kind"], dict(contents.arrays))
            case "gate":
                return _gate(contents.header, dict(contents.arrays))
            case "steering-function":
                return _steering(contents)
    raise FileFormatError(f"There is no way to read a {contents.kind}; upgrade repsurgery.")


def _gate(header: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> Gate:
    return gate_from_arrays(header["kind"], tuple(header["classes"]), arrays)


def _steering(contents: Contents) -> SteeringFunction:
    header = contents.header
    maps: dict[Label | None, AffineMap] = {}
    for i, entry in enumerate(header["maps"]):
        maps[entry["label"]] = from_arrays(entry["kind"], _under(contents.arrays, f"map.{i}."))
    gate = _gate(header["gate"], _under(contents.arrays, "gate."))
    if len(maps) < len(header["maps"]):
        raise LabelError("Two of the maps serve the same class.")
    certificate = None if header["certificate"] is None else Certificate.from_dict(header["certificate"])
    origin = Origin.from_header(header.get("origin"))
    return SteeringFunction(maps, gate, tuple(header["classes"]), certificate, origin)


def _under(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
