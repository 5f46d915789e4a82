"""Hold a certificate to its claims: against bytes, and against rows with their sampling error."""

from dataclasses import dataclass

import numpy as np

from repsurgery.arrays import Matrix
from repsurgery.certificates.certificate import Certificate, Claim, PairRecord
from repsurgery.errors import CertificateError

__all__ = ["SamplingError", "check_claims", "check_digest"]

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
class SamplingError:
    """Standard errors of one class's mean, covariance, variances and trace, from its own rows.

    Distribution-free: E‖Σ̂ − Σ‖²_F = (E‖x‖⁴ − ‖Σ‖²_F)/n for centred x, whatever the tails.
    """

    mean: float
    covariance: float
    variance: float
    trace: float

    @classmethod
    def of(cls, X: Matrix, fitting_rows: int) -> "SamplingError":
        """Estimate from rows (n, d); ``fitting_rows`` adds the error of the sample the map was fitted on."""
        C = X - X.mean(axis=0)
        squares = np.square(C)
        energy = squares.sum(axis=1)
        S2 = float(np.square(C.T @ C / len(C)).sum()) if len(C) >= C.shape[1] else _gram_norm(C)
        variances = squares.mean(axis=0)
        shrink = np.sqrt(1 / len(C) + 1 / max(fitting_rows, 1))
        fourth = float(np.square(energy).mean())
        return cls(
            mean=float(np.sqrt(variances.sum()) * shrink),
            covariance=float(np.sqrt(max(fourth - S2, 0.0)) * shrink),
            variance=float(np.sqrt(max((squares**2).mean(axis=0).sum() - (variances**2).sum(), 0.0)) * shrink),
            trace=float(energy.std() * shrink),
        )


def _gram_norm(C: Matrix) -> float:
    return float(np.square(C @ C.T / len(C)).sum())


def check_claims(
    certificate: Certificate,
    fresh: PairRecord,
    source: SamplingError,
    target: SamplingError,
    scales: tuple[float, float, float],
) -> None:
    """Raise `CertificateError` where a fresh record exceeds a claim by more than sampling error explains.

    ``scales`` are ‖Σ₁‖_F, ‖diag Σ₁‖ and tr Σ₁ of the reference, in which relative gaps are measured.
    """
    claimed = certificate.by_source[fresh.source]
    both = {name: float(np.hypot(getattr(source, name), getattr(target, name))) for name in source.__slots__}
    covariance_scale, variance_scale, trace = (max(s, 1e-300) for s in scales)
    mean_slack = STANDARD_ERRORS * both["mean"]
    allowed: dict[Claim, tuple[str, float]] = {
        "means": ("mean_gap", mean_slack + ROUNDING * (np.sqrt(trace) + fresh.mean_gap_before)),
        "covariances": ("covariance_gap", STANDARD_ERRORS * both["covariance"] / covariance_scale + ROUNDING),
        "variances": ("variance_gap", STANDARD_ERRORS * both["variance"] / variance_scale + ROUNDING),
        "neighbours": ("ebbn", STANDARD_ERRORS * both["trace"] + mean_slack**2 + ROUNDING * trace),
    }
    for claim in certificate.claims:
        name, slack = allowed[claim]
        found, limit = getattr(fresh, name), getattr(claimed, name) + slack
        if not found <= limit:
            raise CertificateError(
                f"{certificate.method}: on these rows the {name} of {fresh.source!r} is {found:.3g}, certified "
                f"{getattr(claimed, name):.3g} and at most {limit:.3g} with sampling error. "
                "The data have moved, or the fit had too few rows; fit again, with shrinkage if rows are few."
            )
