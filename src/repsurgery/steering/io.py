"""`save` and `load`: any value of this package as one file."""

import os
from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np

from repsurgery.affine import AffineMap
from repsurgery.arrays import check_integer
from repsurgery.errors import FileFormatError, ParameterError, ShapeError
from repsurgery.files import Contents, built_from, read_file, write_file
from repsurgery.gates import Gate
from repsurgery.gates.base import GATES
from repsurgery.moments import ClassMoments, CrossMoments, Moments, by_class, cross
from repsurgery.moments.moments import Precision
from repsurgery.moments.shrinkage import check_shrinkage
from repsurgery.price import Fisher, fisher
from repsurgery.steering import function_file
from repsurgery.steering.base import METHODS, BaseSteering
from repsurgery.steering.function import SteeringFunction
from repsurgery.steering.places import find
from repsurgery.steering.selection import known_label

__all__ = ["load", "save"]

Saveable = BaseSteering | SteeringFunction | AffineMap | Gate | Moments | ClassMoments | CrossMoments | Fisher


def save(value: Saveable, path: str | os.PathLike[str]) -> None:
    """Write an estimator, steering function, map, gate, moments or Fisher matrix to one file, whole or not at all.

    An estimator is written with its moments, so that ``partial_fit`` can continue after loading. Moments hold no rows,
    but they do describe them; save ``est.steering_`` to share the maps, the gate and the certificate alone.
    """
    write_file(path, _to_contents(value))


def load(path: str | os.PathLike[str]) -> Any:
    """Read a file that `save` wrote, as the same type, after checking version, digest, shapes and values.

    Parameters
    ----------
    path : path or str
        A file, or a folder of `save_pretrained`; as a string also "hub:OWNER/NAME", a repository on the hub, or a name
        of the zoo, such as "courteous". A local file or folder comes first.
    """
    contents = read_file(find(path), kind=tuple(_READERS))
    return _READERS[contents.kind](contents)


def _to_contents(value: Saveable) -> Contents:
    match value:
        case ClassMoments():
            return by_class.to_contents(value)
        case CrossMoments():
            return cross.cross_to_contents(value)
        case Moments():
            return by_class.single_to_contents(value)
        case Fisher():
            return fisher.to_contents(value)
        case AffineMap():
            return Contents("map", {"kind": value.kind}, value.arrays())
        case Gate():
            return Contents("gate", {"kind": value.kind, "classes": list(value.classes)}, value.arrays())
        case SteeringFunction():
            return function_file.to_contents(value)
        case BaseSteering():
            return _estimator_to_contents(value)
    remedy = "its steering_" if hasattr(value, "steering_") else "a map, a gate, a steering function or moments"
    raise FileFormatError(f"Cannot save a {type(value).__name__}; save {remedy}.")


def _estimator_to_contents(estimator: BaseSteering) -> Contents:
    steering, moments = _to_contents(estimator.steering_), _to_contents(estimator.moments_)
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
        # files of class moments stay equal to those of earlier versions
        **({} if moments.kind == by_class.KIND else {"moments_kind": moments.kind}),
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


@built_from("an estimator")
def _estimator(contents: Contents) -> BaseSteering:
    header, arrays = contents.header, contents.arrays
    estimator_class = _class_of(header)
    kind = header.get("moments_kind", by_class.KIND)
    if kind not in (by_class.KIND, cross.KIND):
        raise FileFormatError(f"The file holds an estimator with moments of the kind {kind!r}; upgrade repsurgery.")
    moments = _READERS[kind](Contents(kind, header["moments"], function_file.under(arrays, "moments/")))
    steering = function_file.from_contents(
        Contents(function_file.KIND, header["steering"], function_file.under(arrays, "steering/"))
    )
    if (steering.dim, steering.classes) != (moments.dim, tuple(getattr(moments, "labels", ()))):
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
        if issubclass(cls, BaseSteering) and cls.__name__ == name and module in (None, cls.__module__):
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
        elif name in ("random_state", "folds"):
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


_READERS: Mapping[str, Callable[[Contents], Any]] = {
    by_class.KIND: by_class.from_contents,
    cross.KIND: cross.cross_from_contents,
    by_class.SINGLE: by_class.single_from_contents,
    fisher.KIND: fisher.from_contents,
    "estimator": _estimator,
    "map": function_file.map_from_contents,
    "gate": function_file.gate_from_contents,
    function_file.KIND: function_file.from_contents,
}
