"""Gates, the concept-encoding functions: which vectors are steered."""

from repsurgery.gates.base import Gate, ScoringGate
from repsurgery.gates.build import build_gate
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
    "ScoringGate",
    "build_gate",
    "calibrate_gate",
]
