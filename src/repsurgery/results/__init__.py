"""Records of what was run and what came out: written by experiments, read by reports."""

from repsurgery.results.demo import CertifiedMap, Cloud, DemoRecord, Outcome, Scope
from repsurgery.results.environment import environment
from repsurgery.results.estimate import Estimate
from repsurgery.results.store import read_record, read_records, write_record
from repsurgery.results.study import CosineThumbnail, MethodResult, Setting, StudyRecord
from repsurgery.results.toxicity import Configured, Example, ToxicityRecord

__all__ = [
    "CertifiedMap",
    "Cloud",
    "Configured",
    "CosineThumbnail",
    "DemoRecord",
    "Estimate",
    "Example",
    "MethodResult",
    "Outcome",
    "Scope",
    "Setting",
    "StudyRecord",
    "ToxicityRecord",
    "environment",
    "read_record",
    "read_records",
    "write_record",
]
