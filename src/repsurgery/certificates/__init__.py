"""Certificates: issue them from moments, re-issue them on rows, hold them to their claims."""

from repsurgery.certificates.certificate import Certificate, PairRecord
from repsurgery.certificates.verify import Verification

__all__ = ["Certificate", "PairRecord", "Verification"]
