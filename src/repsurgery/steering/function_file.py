"""A steering function as the contents of a file, and back."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from repsurgery.affine import AffineMap
from repsurgery.affine.kinds import from_arrays
from repsurgery.arrays import Label
from repsurgery.certificates.kinds import certificate_from_dict
from repsurgery.certificates.outcome import Outcome
from repsurgery.errors import LabelError
from repsurgery.files import Contents, built_from
from repsurgery.gates import Gate
from repsurgery.gates.rules import gate_from_arrays
from repsurgery.origin import Origin
from repsurgery.price.price import price_from_parts, price_parts
from repsurgery.steering.function import SteeringFunction

__all__ = ["KIND", "from_contents", "gate_from_contents", "map_from_contents", "to_contents", "under"]

KIND = "steering-function"


def to_contents(value: SteeringFunction) -> Contents:
    """Return what a file of ``value`` contains."""
    arrays, header = value.parts(saving=True)
    certificate = value.certificate.to_dict() if value.certificate else None
    # an unknown origin is not written, so that such files stay equal to those of earlier versions, bit for bit
    origin = {"origin": known} if (known := value.origin.known()) else {}
    priced, price = price_parts(value.price) if value.price else ({}, None)
    arrays |= {f"price/{name}": array for name, array in priced.items()}
    header |= {"price": price} if price else {}
    header |= {"outcome": value.outcome.to_dict()} if value.outcome else {}
    return Contents(KIND, {**header, "certificate": certificate, **origin}, arrays)


@built_from("a map")
def map_from_contents(contents: Contents) -> AffineMap:
    """Return the map in a file."""
    return from_arrays(contents.header["kind"], dict(contents.arrays))


@built_from("a gate")
def gate_from_contents(contents: Contents) -> Gate:
    """Return the gate in a file."""
    return gate_from_arrays(contents.header["kind"], tuple(contents.header["classes"]), dict(contents.arrays))


@built_from("a steering-function")
def from_contents(contents: Contents) -> SteeringFunction:
    """Return the steering function in a file."""
    header = contents.header
    maps: dict[Label | None, AffineMap] = {}
    for i, entry in enumerate(header["maps"]):
        maps[entry["label"]] = from_arrays(entry["kind"], under(contents.arrays, f"map.{i}."))
    if len(maps) < len(header["maps"]):
        raise LabelError("Two of the maps serve the same class.")
    gate = gate_from_contents(Contents("gate", header["gate"], under(contents.arrays, "gate.")))
    certificate = None if header["certificate"] is None else certificate_from_dict(header["certificate"])
    origin = Origin.from_header(header.get("origin"))
    price = price_from_parts(under(contents.arrays, "price/"), header.get("price"))
    outcome = None if header.get("outcome") is None else Outcome.from_dict(header["outcome"])
    function = SteeringFunction(maps, gate, tuple(header["classes"]), certificate, origin, outcome=outcome)
    return function.with_price(price)


def under(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names begin with ``prefix``, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
