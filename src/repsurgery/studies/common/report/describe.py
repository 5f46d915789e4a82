"""The contents of a file in JSON-ready values: shapes, classes, certificate."""

from typing import Any

from numpy.typing import NDArray

from repsurgery.affine import AffineMap
from repsurgery.errors import ParameterError
from repsurgery.gates import Gate
from repsurgery.moments import ClassMoments, CrossMoments, Moments
from repsurgery.price import Fisher
from repsurgery.steering.base import BaseSteering
from repsurgery.steering.function import SteeringFunction

__all__ = ["describe"]


def describe(value: Any) -> dict[str, Any]:
    """Return a JSON-ready description of a map, gate, steering function, estimator or moments.

    Examples
    --------
    >>> import repsurgery as rs
    >>> from repsurgery.report import describe
    >>> describe(rs.Translation([1.0, 2.0]))
    {'kind': 'map', 'map': 'translation', 'features': 2, 'arrays': {'shift': [2]}}
    """
    match value:
        case BaseSteering():
            return {
                "kind": "estimator",
                "estimator": type(value).__name__,
                "params": {name: _parameter(param) for name, param in value.get_params(deep=False).items()},
                "origin": value.origin.to_dict(),
                "moments": _moments(value.moments_),
                "steering": _steering(value.steering_),
            }
        case SteeringFunction():
            return {"kind": "steering-function", "origin": value.origin.to_dict(), **_steering(value)}
        case AffineMap():
            return {"kind": "map", **_map(value)}
        case Gate():
            return {"kind": "gate", **_gate(value)}
        case Fisher():
            return {"kind": "fisher", "features": value.dim, "positions": value.count, "samples": value.samples}
        case CrossMoments():
            return {"kind": "cross-moments", **_moments(value)}
        case ClassMoments():
            return {"kind": "class-moments", **_moments(value)}
    raise ParameterError(f"A {type(value).__name__} cannot be described; pass an object that repsurgery.load returned.")


def _steering(value: SteeringFunction) -> dict[str, Any]:
    return {
        "features": value.dim,
        "classes": list(value.classes),
        "maps": {str(label): _map(m) for label, m in value.maps.items()},
        "gate": _gate(value.gate),
        "digest": value.digest(),
        "certificate": value.certificate.to_dict() if value.certificate else None,
        **({"price": _price(value)} if value.price else {}),
    }


def _price(value: SteeringFunction) -> dict[str, Any]:
    assert value.price is not None
    return {"positions": value.price.fisher.count, "predicted KL at strength 1": value.price.kl(value)}


def _map(value: AffineMap) -> dict[str, Any]:
    return {"map": value.kind, "features": value.dim, "arrays": _shapes(value.arrays())}


def _gate(value: Gate) -> dict[str, Any]:
    return {"gate": value.kind, "classes": list(value.classes), "arrays": _shapes(value.arrays())}


def _moments(value: ClassMoments | CrossMoments) -> dict[str, Any]:
    if isinstance(value, CrossMoments):
        return {"features": value.dim, "concept columns": value.concept.dim, **_class(value.rows)}
    return {"features": value.dim, "classes": {str(label): _class(m) for label, m in value.items()}}


def _class(m: Moments) -> dict[str, Any]:
    grouped = {"groups": m.groups.count, "effective rows": m.effective_count} if m.groups is not None else {}
    return {"rows": m.count, **grouped, "weight": m.weight, "trace": m.trace, "precision": m.precision}


def _shapes(arrays: dict[str, NDArray[Any]]) -> dict[str, list[int]]:
    return {name: list(array.shape) for name, array in arrays.items()}


def _parameter(param: Any) -> Any:
    if param is None or isinstance(param, bool | int | float | str):
        return param
    return [_parameter(p) for p in param] if isinstance(param, list | tuple) else type(param).__name__
