"""Records of what was run and what came out: written by experiments, read by reports."""

from repsurgery.results.demo import CertifiedMap, Cloud, DemoRecord, Outcome, Scope
from repsurgery.results.environment import environment
from repsurgery.results.store import read_record, read_records, write_record
from repsurgery.results.study import CosineThumbnail, Estimate, MethodResult, Setting, StudyRecord

__all__ = [
    "CertifiedMap",
    "Cloud",
    "CosineThumbnail",
    "DemoRecord",
    "Estimate",
    "MethodResult",
    "Outcome",
    "Scope",
    "Setting",
    "StudyRecord",
    "environment",
    "read_record",
    "read_records",
    "write_record",
]
