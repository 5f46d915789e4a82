"""The estimators: statistics in, a certified steering function out."""

from repsurgery.steering.barycenter_erasure import BarycenterErasure
from repsurgery.steering.diagonal_transport import DiagonalTransport
from repsurgery.steering.io import load, save
from repsurgery.steering.leace import LEACE
from repsurgery.steering.mean_matching import MeanMatching
from repsurgery.steering.midsteer import MidSteer
from repsurgery.steering.mimic import MiMiC
from repsurgery.steering.trace_matching import TraceMatching

__all__ = [
    "LEACE",
    "BarycenterErasure",
    "DiagonalTransport",
    "MeanMatching",
    "MiMiC",
    "MidSteer",
    "TraceMatching",
    "load",
    "save",
]
