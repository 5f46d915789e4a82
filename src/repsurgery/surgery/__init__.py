"""The frozen steering function, its file form and its audit."""

from repsurgery.origin import Origin
from repsurgery.surgery.audit import certify, verify
from repsurgery.surgery.function import SteeringFunction

__all__ = ["Origin", "SteeringFunction", "certify", "verify"]
