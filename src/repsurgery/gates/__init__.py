"""Concept-encoding functions: which vectors are steered."""

from repsurgery.gates.base import Gate
from repsurgery.gates.calibrate import calibrate_gate
from repsurgery.gates.rules import AlwaysGate, ClassifierGate, LabelsGate, LinearGate, MLPGate, QuadraticGate

__all__ = [
    "AlwaysGate",
    "ClassifierGate",
    "Gate",
    "LabelsGate",
    "LinearGate",
    "MLPGate",
    "QuadraticGate",
    "calibrate_gate",
]
