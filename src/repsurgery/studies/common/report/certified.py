"""Columns of certificates: what a fit claims of its rows, and what held-out rows say of it."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from repsurgery.studies.common.report.tables import number

__all__ = ["Certified", "certificate_columns", "is_certified"]


class Certified(Protocol):
    """What carries certificates in a record: a method's result, or a configuration."""

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The certificate on the fitting rows."""

    @property
    def held_out(self) -> Mapping[str, Any] | None:
        """The certificate re-issued on rows that took no part."""

    @property
    def supported(self) -> bool | None:
        """Whether the held-out rows support the claims; None where they cannot tell or were not asked."""

    @property
    def verdict(self) -> str | None:
        """The three-valued verdict; None in records from before it was kept."""


def is_certified(result: Certified) -> bool:
    """Return whether there is a certificate to show."""
    return result.certificate is not None or result.held_out is not None


def certificate_columns() -> tuple[tuple[str, Callable[[Certified], str]], ...]:
    """Return headings, and the cell of one result under each."""
    return (
        ("mean gap before", lambda r: number(_before(r.certificate, "mean_gap_before"))),
        ("mean gap, fitted", lambda r: number(_held(r.certificate, "mean_gap"))),
        ("held out", lambda r: number(_held(r.held_out, "mean_gap"))),
        ("held out, as gated", lambda r: number(_held(r.held_out, "gated_mean_gap"))),
        ("covariance gap before", lambda r: number(_before(r.certificate, "covariance_gap_before"))),
        ("covariance gap, fitted", lambda r: number(_held(r.certificate, "covariance_gap"))),
        ("held out", lambda r: number(_held(r.held_out, "covariance_gap"))),
        ("gate's Youden J", lambda r: number(_held(r.held_out, "youden"))),
        ("claims", _claims),
    )


def _claims(r: Certified) -> str:
    if r.verdict is not None:
        return r.verdict
    # without a verdict the power is unknown, and no contradiction is not support
    return "–" if r.supported is None else "not contradicted" if r.supported else "contradicted"


def _held(certificate: Mapping[str, Any] | None, name: str) -> float | None:
    return None if certificate is None else certificate.get(name)


def _before(certificate: Mapping[str, Any] | None, name: str) -> float | None:
    pairs = [] if certificate is None else certificate.get("by_source", [])
    known = [pair[name] for pair in pairs if pair.get(name) is not None]
    return max(known, default=None)
