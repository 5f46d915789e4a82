"""`save` and `load`: any value of this package as one file."""

import os
from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from repsurgery.affine import AffineMap
from repsurgery.affine.maps import from_arrays
from repsurgery.arrays import Label, check_integer
from repsurgery.certificates.effect import certificate_from_dict
from repsurgery.certificates.outcome import Outcome
from repsurgery.errors import FileFormatError, LabelError, ParameterError, ShapeError
from repsurgery.files import Contents, built_from, read_file, write_file
from repsurgery.gates import Gate
from repsurgery.gates.base import GATES
from repsurgery.gates.rules import gate_from_arrays
from repsurgery.moments import ClassMoments, Moments, by_class
from repsurgery.moments.moments import Precision
from repsurgery.moments.shrinkage import check_shrinkage
from repsurgery.origin import Origin
from repsurgery.price import Fisher, fisher
from repsurgery.price.price import price_from_parts, price_parts
from repsurgery.steering.base import METHODS, BaseSteering
from repsurgery.steering.function import SteeringFunction
from repsurgery.steering.selection import known_label

__all__ = ["load", "save"]

Saveable = BaseSteering | SteeringFunction | AffineMap | Gate | Moments | ClassMoments | Fisher


def save(value: Saveable, path: str | os.PathLike[str]) -> None:
    """Write an estimator, steering function, map, gate, moments or Fisher matrix to one file, whole or not at all.

    An estimator is written with its moments, so that ``partial_fit`` can continue after loading. Moments hold no rows,
    but they do describe them; save ``est.steering_`` to share the maps, the gate and the certificate alone.
    """
    write_file(path, _to_contents(value))


def load(path: str | os.PathLike[str]) -> Any:
    """Read a file that `save` wrote, as the same type, after checking version, digest, shapes and values."""
    contents = read_file(path, kind=tuple(_READERS))
    return _READERS[contents.kind](contents)


def _to_contents(value: Saveable) -> Contents:
    match value:
        case ClassMoments():
            return by_class.to_contents(value)
        case Moments():
            return by_class.single_to_contents(value)
        case Fisher():
            return fisher.to_contents(value)
        case AffineMap():
            return Contents("map", {"kind": value.kind}, value.arrays())
        case Gate():
            return Contents("gate", {"kind": value.kind, "classes": list(value.classes)}, value.arrays())
        case SteeringFunction():
            arrays, header = value.parts(saving=True)
            certificate = value.certificate.to_dict() if value.certificate else None
            # an unknown origin is not written, so that such files stay equal to those of earlier versions, bit for bit
            origin = {"origin": known} if (known := value.origin.known()) else {}
            priced, price = price_parts(value.price) if value.price else ({}, None)
            arrays |= {f"price/{name}": array for name, array in priced.items()}
            header |= {"price": price} if price else {}
            header |= {"outcome": value.outcome.to_dict()} if value.outcome else {}
            return Contents("steering-function", {**header, "certificate": certificate, **origin}, arrays)
        case BaseSteering():
            return _estimator_to_contents(value)
    remedy = "its steering_" if hasattr(value, "steering_") else "a map, a gate, a steering function or moments"
    raise FileFormatError(f"Cannot save a {type(value).__name__}; save {remedy}.")


def _estimator_to_contents(estimator: BaseSteering) -> Contents:
    steering, moments = _to_contents(estimator.steering_), by_class.to_contents(estimator.moments_)
    features = getattr(estimator, "feature_names_in_", None)
    named = {"estimator": type(estimator).__name__, **_module_of(type(estimator))}
    if _class_of(named) is not type(estimator):
        raise FileFormatError(f"{named['estimator']} is not the class that is registered under its name. Rename it.")
    header = {
        **named,
        "params": {name: _plain(name, param) for name, param in estimator.get_params(deep=False).items()},
        "features": None if features is None else list(features),
        "n_iter": getattr(estimator, "n_iter_", None),
        "steering": dict(steering.header),
        "moments": dict(moments.header),
    }
    arrays = {f"steering/{k}": a for k, a in steering.arrays.items()}
    arrays |= {f"moments/{k}": a for k, a in moments.arrays.items()}
    return Contents("estimator", header, arrays)


def _plain(name: str, param: Any) -> Any:
    if name == "gate" and not isinstance(param, str):
        return None  # a fitted gate is stored with the steering function and restored from there
    if isinstance(param, np.generic):
        return param.item()
    if isinstance(param, list | tuple | set | np.ndarray):
        return np.asarray(list(param)).tolist()
    if param is not None and not isinstance(param, bool | int | float | str):
        raise FileFormatError(f"Cannot save the parameter {name}={param!r}; use a number, a string or None.")
    return param


@built_from("a map")
def _map(contents: Contents) -> AffineMap:
    return from_arrays(contents.header["kind"], dict(contents.arrays))


@built_from("a gate")
def _gate(contents: Contents) -> Gate:
    return gate_from_arrays(contents.header["kind"], tuple(contents.header["classes"]), dict(contents.arrays))


@built_from("a steering-function")
def _steering(contents: Contents) -> SteeringFunction:
    header = contents.header
    maps: dict[Label | None, AffineMap] = {}
    for i, entry in enumerate(header["maps"]):
        maps[entry["label"]] = from_arrays(entry["kind"], _under(contents.arrays, f"map.{i}."))
    if len(maps) < len(header["maps"]):
        raise LabelError("Two of the maps serve the same class.")
    gate = _gate(Contents("gate", header["gate"], _under(contents.arrays, "gate.")))
    certificate = None if header["certificate"] is None else certificate_from_dict(header["certificate"])
    origin = Origin.from_header(header.get("origin"))
    price = price_from_parts(_under(contents.arrays, "price/"), header.get("price"))
    outcome = None if header.get("outcome") is None else Outcome.from_dict(header["outcome"])
    function = SteeringFunction(maps, gate, tuple(header["classes"]), certificate, origin, outcome=outcome)
    return function.with_price(price)


@built_from("an estimator")
def _estimator(contents: Contents) -> BaseSteering:
    header, arrays = contents.header, contents.arrays
    estimator_class = _class_of(header)
    moments = by_class.from_contents(Contents(by_class.KIND, header["moments"], _under(arrays, "moments/")))
    steering = _steering(Contents("steering-function", header["steering"], _under(arrays, "steering/")))
    if (steering.dim, steering.classes) != (moments.dim, tuple(moments.labels)):
        raise ShapeError("Its maps do not match its moments: width or classes differ.")
    params, features = dict(header["params"]), header["features"]
    if "gate" in params and params["gate"] is None:
        params["gate"] = steering.gate
    estimator = estimator_class(**params)
    _require_params(estimator, moments)
    estimator.moments_ = moments
    estimator._steering = steering
    estimator._origin = steering.origin
    estimator.n_features_in_ = moments.dim
    if (steps := header.get("n_iter")) is not None:
        estimator.n_iter_ = check_integer("Its number of iterations", steps, least=0)
    if features is not None:
        if len(features) != moments.dim or not all(isinstance(name, str) for name in features):
            raise ShapeError(f"It names {len(features)} features, and its moments have {moments.dim}.")
        estimator.feature_names_in_ = np.array(features, dtype=object)
    return estimator


def _module_of(cls: type[BaseSteering]) -> dict[str, str]:
    """Return the module of an estimator of another package; files of our own estimators do not name theirs."""
    return {} if cls.__module__.startswith("repsurgery.") else {"module": cls.__module__}


def _class_of(header: Mapping[str, Any]) -> type[BaseSteering]:
    name, module = header.get("estimator"), header.get("module")
    classes = METHODS.own().values() if module is None else (METHODS[method] for method in METHODS)
    for cls in classes:
        if cls.__name__ == name and module in (None, cls.__module__):
            return cls
    if module is None:
        raise FileFormatError(f"The file holds an unknown estimator {name!r}; upgrade repsurgery.")
    raise FileFormatError(
        f"The file holds an unknown estimator {name!r} of the module {module!r}; no installed package registers it. "
        "Install the package that does. A file of its steering_ loads without the package."
    )


def _require_params(estimator: BaseSteering, moments: ClassMoments) -> None:
    """Raise for parameters that `fit` would reject, without fitting."""
    defaults = type(estimator)().get_params(deep=False)
    for name, value in estimator.get_params(deep=False).items():
        default = type(defaults[name])
        if name in ("source", "target", "neutral"):
            for label in value if isinstance(value, list) else [] if value is None else [value]:
                known_label(moments, label)
        elif name == "random_state":
            if value is not None and type(value) is not int:
                raise ParameterError(f"{name} is {value!r}; it must be a whole number or None.")
        elif name != "alpha" and not isinstance(value, Gate) and type(value) not in _SAME_TYPE.get(default, (default,)):
            raise ParameterError(f"{name} is {value!r}; its default is {defaults[name]!r}.")
    check_shrinkage(estimator.shrinkage, estimator.ridge, estimator.alpha)
    if isinstance(estimator.gate, str):
        GATES[estimator.gate]
    if estimator.precision not in get_args(Precision):
        raise ParameterError(f"precision is {estimator.precision!r}; it must be one of {list(get_args(Precision))}.")


_SAME_TYPE: Mapping[type, tuple[type, ...]] = {float: (float, int), int: (int, float)}


def _under(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


_READERS: Mapping[str, Callable[[Contents], Any]] = {
    by_class.KIND: by_class.from_contents,
    by_class.SINGLE: by_class.single_from_contents,
    fisher.KIND: fisher.from_contents,
    "estimator": _estimator,
    "map": _map,
    "gate": _gate,
    "steering-function": _steering,
}
