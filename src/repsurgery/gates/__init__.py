"""Concept-encoding functions: which vectors are steered."""

from repsurgery.gates.base import Gate
from repsurgery.gates.rules import AlwaysGate, ClassifierGate, LabelsGate, LinearGate, MLPGate, QuadraticGate

__all__ = ["AlwaysGate", "ClassifierGate", "Gate", "LabelsGate", "LinearGate", "MLPGate", "QuadraticGate"]
