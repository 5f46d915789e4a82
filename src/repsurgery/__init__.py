"""Affine representation surgery: steer and erase concepts by optimal affine maps that carry their own proof."""

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
