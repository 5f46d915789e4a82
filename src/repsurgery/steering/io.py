"""`save` and `load`: any value of this package as one file."""

import os
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from repsurgery.affine import AffineMap
from repsurgery.errors import FileFormatError, ParameterError, ShapeError
from repsurgery.files import Contents, built_from, read_file, write_file
from repsurgery.gates import Gate
from repsurgery.gates.base import GATES
from repsurgery.moments import ClassMoments, Moments, by_class
from repsurgery.moments.moments import Precision
from repsurgery.moments.shrinkage import check_shrinkage
from repsurgery.steering import function_files as surgery_io
from repsurgery.steering.base import METHODS, BaseSteering
from repsurgery.steering.function import SteeringFunction
from repsurgery.steering.selection import known_label

__all__ = ["load", "save"]

Saveable = BaseSteering | SteeringFunction | AffineMap | Gate | Moments | ClassMoments

_KINDS = (by_class.KIND, by_class.SINGLE, "estimator", *surgery_io.KINDS)


def save(value: Saveable, path: str | os.PathLike[str]) -> None:
    """Write an estimator, steering function, map, gate or moments to one file, atomically and without pickle.

    An estimator is written with its moments, so that it can go on learning; moments hold no rows, but they do
    describe them. Save ``est.steering_`` to share the maps, the gate and the certificate alone.
    """
    write_file(path, _to_contents(value))


def load(path: str | os.PathLike[str]) -> Any:
    """Read back what `save` wrote, as the same type, after checking version, digest, shapes and values."""
    contents = read_file(path, kind=_KINDS)
    if contents.kind == by_class.KIND:
        return by_class.from_contents(contents)
    if contents.kind == by_class.SINGLE:
        return by_class.single_from_contents(contents)
    if contents.kind == "estimator":
        return _estimator(contents)
    return surgery_io.from_contents(contents)


def _to_contents(value: Saveable) -> Contents:
    if isinstance(value, ClassMoments):
        return by_class.to_contents(value)
    if isinstance(value, Moments):
        return by_class.single_to_contents(value)
    if not isinstance(value, BaseSteering):
        return surgery_io.to_contents(value)
    steering, moments = surgery_io.to_contents(value.steering_), by_class.to_contents(value.moments_)
    header = {
        "estimator": type(value).__name__,
        **_module_of(type(value)),
        "params": {name: _plain(name, param) for name, param in value.get_params(deep=False).items()},
        "features": _feature_names(value),
        "n_iter": getattr(value, "n_iter_", None),
        "steering": dict(steering.header),
        "moments": dict(moments.header),
    }
    arrays = {f"steering/{k}": a for k, a in steering.arrays.items()}
    arrays |= {f"moments/{k}": a for k, a in moments.arrays.items()}
    return Contents("estimator", header, arrays)


def _plain(name: str, param: Any) -> Any:
    if name == "gate" and not isinstance(param, str):
        return None  # a fitted gate is stored with the steering function and put back from there
    if isinstance(param, np.generic):
        return param.item()
    if isinstance(param, list | tuple | set | np.ndarray):
        return np.asarray(list(param)).tolist()
    if param is not None and not isinstance(param, bool | int | float | str):
        raise FileFormatError(f"Cannot save the parameter {name}={param!r}; use a number, a string or None.")
    return param


def _feature_names(estimator: BaseSteering) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else list(names)


def _estimator(contents: Contents) -> BaseSteering:
    header = contents.header
    estimator_class = _class_of(header)
    with built_from("an estimator"):
        moments = by_class.from_contents(_part(contents, "moments", by_class.KIND))
        steering = surgery_io.from_contents(_part(contents, "steering", "steering-function"))
        assert isinstance(steering, SteeringFunction)
        if (steering.dim, steering.classes) != (moments.dim, tuple(moments.labels)):
            raise ShapeError("Its maps are not those of its moments: width or classes differ.")
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
            if type(steps) is not int or steps < 0:
                raise ParameterError(f"It counts {steps!r} iterations, which is no number of them.")
            estimator.n_iter_ = steps
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
    """Refuse parameters that `fit` would refuse, without fitting."""
    usual = type(estimator)().get_params(deep=False)
    for name, value in estimator.get_params(deep=False).items():
        if name in ("source", "target", "neutral"):
            for label in value if isinstance(value, list) else [] if value is None else [value]:
                known_label(moments, label)
        elif name == "random_state":
            if value is not None and type(value) is not int:
                raise ParameterError(f"{name} is {value!r}; a file holds a whole number or nothing.")
        elif not isinstance(value, Gate) and type(value) not in _ALIKE.get(type(usual[name]), (type(usual[name]),)):
            raise ParameterError(f"{name} is {value!r}; it is usually {usual[name]!r}.")
    check_shrinkage(estimator.shrinkage, estimator.ridge)
    if isinstance(estimator.gate, str):
        GATES[estimator.gate]
    if estimator.precision not in get_args(Precision):
        raise ParameterError(f"precision is {estimator.precision!r}; it must be one of {list(get_args(Precision))}.")


_ALIKE: Mapping[type, tuple[type, ...]] = {float: (float, int), int: (int, float)}


def _part(contents: Contents, name: str, kind: str) -> Contents:
    prefix = f"{name}/"
    arrays = {k.removeprefix(prefix): a for k, a in contents.arrays.items() if k.startswith(prefix)}
    return Contents(kind, contents.header[name], arrays)
