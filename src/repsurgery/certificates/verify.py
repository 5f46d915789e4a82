"""Hold a certificate to its claims: against bytes, and against rows with their sampling error."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import norm

from repsurgery.arrays import Matrix, Vector
from repsurgery.certificates.certificate import Certificate, Claim, PairRecord
from repsurgery.errors import CertificateError

__all__ = ["Sample", "check_claims", "check_digest"]

STANDARD_ERRORS = 5.0
"""A gap may exceed its claim by this many standard errors before the data contradict it."""
ROUNDING = 1e-9
"""Relative slack for arithmetic, wide of float64 rounding at any dimension served here."""


def check_digest(certificate: Certificate, digest: str) -> None:
    """Raise `CertificateError` unless the bytes of maps and gate are the certified ones."""
    if digest != certificate.digest:
        raise CertificateError(
            f"{certificate.method}: the maps or the gate are not the ones that were certified (digest "
            f"{digest[:12]}… against {certificate.digest[:12]}…). They were altered or cast; fit again, or load the "
            "original file."
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """What one class's rows say of their own sampling error; distribution-free.

    E‖Σ̂ − Σ‖²_F = (E‖x‖⁴ − ‖Σ‖²_F)/n for centred x, whatever the tails. ``fitting_rows`` adds the error of the sample
    the map was fitted on.

    Attributes
    ----------
    mean, variances : (d,) arrays
    fourth, fourths : float
        E‖x‖⁴ − ‖Σ‖²_F, and Σ_j (E x_j⁴ − σ_j⁴).
    energy : float
        Var ‖x‖².
    norm : float
        ‖Σ‖_F.
    per_row : float
        1/n for these rows plus 1/n for the fitting rows.
    """

    mean: Vector
    variances: Vector
    fourth: float
    fourths: float
    energy: float
    norm: float
    per_row: float

    @classmethod
    def of(cls, X: Matrix, fitting_rows: int) -> "Sample":
        """Summarise rows (n, d)."""
        C = X - X.mean(axis=0)
        squares = np.square(C)
        energy = squares.sum(axis=1)
        gram = C.T @ C if len(C) >= C.shape[1] else C @ C.T
        norm = float(np.linalg.norm(gram) / len(C))
        variances = squares.mean(axis=0)
        return cls(
            mean=X.mean(axis=0),
            variances=variances,
            fourth=max(float(np.square(energy).mean()) - norm**2, 0.0),
            fourths=max(float((squares**2).mean(axis=0).sum() - (variances**2).sum()), 0.0),
            energy=float(energy.var()),
            norm=norm,
            per_row=1 / len(C) + 1 / max(fitting_rows, 1),
        )

    @property
    def trace(self) -> float:
        """Tr Σ."""
        return float(self.variances.sum())


def check_claims(certificate: Certificate, fresh: PairRecord, source: Sample, target: Sample, before: Vector) -> None:
    """Raise `CertificateError` where a fresh record exceeds a claim by more than sampling error explains.

    ``source`` and ``target`` are the steered rows, ``before`` (d,) the gap of their means before steering. Means are
    also compared coordinate by coordinate and along ``before``, where a concept that came back would show first.
    """
    claimed = certificate.by_source[fresh.source]
    # if the claim holds the steered rows are as wide as the target's; a wider spread must not excuse itself
    excess = (target.trace / source.trace) ** 2 if source.trace > target.trace > 0 else 1.0

    def error(name: Literal["fourth", "fourths", "energy"]) -> float:
        squared = excess * getattr(source, name) * source.per_row + getattr(target, name) * target.per_row
        return STANDARD_ERRORS * float(np.sqrt(squared))

    variances = source.variances * source.per_row + target.variances * target.per_row
    mean_slack = STANDARD_ERRORS * float(np.sqrt(variances.sum()))
    trace, variance_norm = max(target.trace, 1e-300), max(float(np.linalg.norm(target.variances)), 1e-300)
    allowed: dict[Claim, tuple[str, float]] = {
        "means": ("mean_gap", mean_slack + ROUNDING * (np.sqrt(trace) + fresh.mean_gap_before)),
        "covariances": ("covariance_gap", error("fourth") / max(target.norm, 1e-300) + ROUNDING),
        "variances": ("variance_gap", error("fourths") / variance_norm + ROUNDING),
        "neighbours": ("ebbn", error("energy") + mean_slack**2 + ROUNDING * trace),
    }
    for claim in certificate.claims:
        name, slack = allowed[claim]
        _require(certificate, fresh, name, getattr(fresh, name), getattr(claimed, name), slack)
    if "means" in certificate.claims:
        _check_directions(certificate, fresh, source.mean - target.mean, variances, before)


def _check_directions(
    certificate: Certificate, fresh: PairRecord, gap: Vector, variances: Vector, before: Vector
) -> None:
    # one false alarm in a million over all coordinates together, by the normal approximation of a mean
    width = float(norm.isf(0.5e-6 / (len(gap) + 1))) + 1.0
    claimed = certificate.by_source[fresh.source].mean_gap
    rounding = ROUNDING * (float(np.sqrt(variances.sum())) + fresh.mean_gap_before)
    excess = np.abs(gap) - width * np.sqrt(variances)
    j = int(excess.argmax())
    _require(
        certificate, fresh, f"mean gap in coordinate {j}", abs(gap[j]), claimed, abs(gap[j]) - excess[j] + rounding
    )
    length = float(np.linalg.norm(before))
    if length > 0:
        u = before / length
        # independent coordinates would give u² · variances; correlated ones at most (Σ |u| sd)²
        spread = float(min((np.abs(u) * np.sqrt(variances)).sum(), np.sqrt(variances.sum())))
        _require(
            certificate, fresh, "mean gap along the concept", abs(float(gap @ u)), claimed, width * spread + rounding
        )


def _require(
    certificate: Certificate, fresh: PairRecord, what: str, found: float, claimed: float, slack: float
) -> None:
    if not found <= claimed + slack:
        raise CertificateError(
            f"{certificate.method}: on these rows the {what} of {fresh.source!r} is {found:.3g}, certified "
            f"{claimed:.3g} and at most {claimed + slack:.3g} with sampling error. The data have moved, or the fit had "
            "too few rows; fit again, with shrinkage if rows are few."
        )
