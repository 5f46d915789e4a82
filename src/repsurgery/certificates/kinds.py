"""The kinds of certificates, and any of them from its plain values."""

from collections.abc import Mapping
from typing import Any

from repsurgery.certificates.certificate import Certificate
from repsurgery.certificates.continuous import ContinuousCertificate
from repsurgery.certificates.effect import EffectCertificate

__all__ = ["AnyCertificate", "certificate_from_dict"]

AnyCertificate = Certificate | ContinuousCertificate | EffectCertificate
"""Of classes, of a continuous concept, or of an effect on what a model writes."""


def certificate_from_dict(plain: Mapping[str, Any]) -> AnyCertificate:
    """Rebuild a certificate of any kind from its plain values."""
    if "held_out_slope" in plain:
        return EffectCertificate.from_dict(plain)
    return ContinuousCertificate.from_dict(plain) if "r2_after" in plain else Certificate.from_dict(plain)
