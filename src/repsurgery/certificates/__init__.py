"""Certificates: issue them from moments, measure them again on rows, verify their claims."""

from repsurgery.certificates.certificate import Certificate, PairRecord
from repsurgery.certificates.verify import Verification

__all__ = ["Certificate", "PairRecord", "Verification"]
