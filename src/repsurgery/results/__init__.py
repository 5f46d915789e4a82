"""Records of what was run and what came out: written by experiments, read by reports."""

from repsurgery.results.demo import CertifiedMap, Cloud, DemoRecord, Outcome, Scope
from repsurgery.results.environment import environment

__all__ = ["CertifiedMap", "Cloud", "DemoRecord", "Outcome", "Scope", "environment"]
