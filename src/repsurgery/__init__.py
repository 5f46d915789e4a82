"""Affine representation surgery: steer and erase concepts by optimal affine maps that carry their own proof."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from repsurgery import errors
    from repsurgery.affine import (
        AffineMap,
        Dense,
        Diagonal,
        Identity,
        LowRank,
        Translation,
        compose,
        interpolate,
    )
    from repsurgery.certificates import Certificate
    from repsurgery.gates import calibrate_gate
    from repsurgery.moments import ClassMoments, Moments
    from repsurgery.steering import (
        LEACE,
        BarycenterErasure,
        DiagonalTransport,
        MeanMatching,
        MidSteer,
        MiMiC,
        TraceMatching,
        load,
        save,
    )
    from repsurgery.surgery import Origin, SteeringFunction, certify, verify

__version__ = "0.1.0"

__all__ = [
    "LEACE",
    "AffineMap",
    "BarycenterErasure",
    "Certificate",
    "ClassMoments",
    "Dense",
    "Diagonal",
    "DiagonalTransport",
    "Identity",
    "LowRank",
    "MeanMatching",
    "MiMiC",
    "MidSteer",
    "Moments",
    "Origin",
    "SteeringFunction",
    "TraceMatching",
    "Translation",
    "calibrate_gate",
    "certify",
    "compose",
    "errors",
    "interpolate",
    "load",
    "save",
    "verify",
]

_HOMES = {
    "affine": (*("AffineMap", "Dense", "Diagonal", "Identity", "LowRank", "Translation", "compose", "interpolate"),),
    "certificates": ("Certificate",),
    "gates": ("calibrate_gate",),
    "moments": ("ClassMoments", "Moments"),
    "steering": (
        *("LEACE", "BarycenterErasure", "DiagonalTransport", "MeanMatching", "MiMiC", "MidSteer", "TraceMatching"),
        *("load", "save"),
    ),
    "surgery": ("Origin", "SteeringFunction", "certify", "verify"),
}
_HOME_OF = {name: room for room, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # SciPy and scikit-learn take seconds to import; a command that only explains itself, or is interrupted, needs none
    if name in _HOME_OF:
        value = getattr(import_module(f"repsurgery.{_HOME_OF[name]}"), name)
    elif name == "errors" or name in _HOMES:
        value = import_module(f"repsurgery.{name}")
    else:
        raise AttributeError(f"module 'repsurgery' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
