"""Hold a certificate to its claims: against bytes, and against rows with their sampling error."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from repsurgery.arrays import Label
from repsurgery.certificates.certificate import Certificate, Claim, PairRecord
from repsurgery.certificates.claims import SHARE, TESTS
from repsurgery.certificates.class_rows import ClassRows
from repsurgery.certificates.evidence import Evidence
from repsurgery.errors import CertificateError

__all__ = [
    "LEVEL",
    "POWER",
    "Finding",
    "Verdict",
    "Verification",
    "as_support",
    "check_digest",
    "judge",
    "require",
    "verdict_of",
]

Verdict = Literal["supported", "contradicted", "cannot tell"]

LEVEL = 0.01
"""The chance that rows of the kind the map was fitted on contradict it, over all claims and classes together."""
POWER = 0.8
"""Below this chance of noticing it, rows that do not contradict a claim do not support it either."""
GAPS: dict[Claim, str] = {
    "means": "mean_gap",
    "covariances": "covariance_gap",
    "variances": "variance_gap",
    "neighbours": "ebbn",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What the rows say of one claim about one class.

    Attributes
    ----------
    source : label
    claim : str
        What is promised equal: means, covariances, variances, neighbours.
    gap, claimed : float
        The gap on these rows as the certificate measures it, and the certified one.
    where : str
        Where the strongest test looked: "along the concept" (the gap before steering), or "in norm".
    found, allowed : float
        The gap there, and the largest one that would not have contradicted the claim.
    p_value : float
        Corrected for the tests of this claim, not yet for the number of claims.
    power : float
        The estimated chance of contradicting a map that leaves a fifth of the gap.
    verdict : {"supported", "contradicted", "cannot tell"}
    """

    source: Label
    claim: Claim
    gap: float
    claimed: float
    where: str
    found: float
    allowed: float
    p_value: float
    power: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict of rows on a certificate; without rows, on its bytes alone.

    It assumes that rows are independent and unweighted and that the scores it averages have finite variance (for
    covariances and neighbours: finite fourth moments). Where the variance itself hangs on a few rows the test stays
    silent rather than alarm, and the answer is "cannot tell".

    Attributes
    ----------
    verdict : {"supported", "contradicted", "cannot tell"}
        The worst over the findings; "cannot tell" where no rows were given.
    level, share : float
        The false-alarm rate of the whole, and the share of the gap that ``power`` speaks of.
    findings : tuple of Finding
    """

    findings: tuple[Finding, ...] = ()
    level: float = LEVEL
    share: float = SHARE

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of any claim."""
        verdicts = {f.verdict for f in self.findings}
        if "contradicted" in verdicts:
            return "contradicted"
        return "supported" if verdicts == {"supported"} else "cannot tell"

    @property
    def p_value(self) -> float | None:
        """The smallest p-value, multiplied by the number of findings; None without rows."""
        return min((min(1.0, f.p_value * len(self.findings)) for f in self.findings), default=None)

    @property
    def power(self) -> float | None:
        """The smallest power of any finding; None without rows."""
        return min((f.power for f in self.findings), default=None)


def check_digest(certificate: Certificate, digest: str) -> None:
    """Raise `CertificateError` unless the bytes of maps and gate are the certified ones."""
    if digest != certificate.digest:
        raise CertificateError(
            f"{certificate.method}: the maps or the gate are not the ones that were certified (digest "
            f"{digest[:12]}… against {certificate.digest[:12]}…). They were altered or cast; fit again, or load the "
            "original file."
        )


def verdict_of(verify: Callable[[], Verification]) -> Verdict:
    """Return what ``verify`` returns as a verdict, or "contradicted" where it raises."""
    try:
        return verify().verdict
    except CertificateError:
        return "contradicted"


def as_support(verdict: Verdict | None) -> bool | None:
    """Return whether the claims are supported; None where rows cannot tell or were not asked."""
    return {"supported": True, "contradicted": False}.get(verdict or "")


def judge(
    certificate: Certificate, fresh: PairRecord, source: ClassRows, target: ClassRows, tests: int
) -> list[Finding]:
    """Return a finding for every claim about one class; ``tests`` is the number of findings in all."""
    certified, level = certificate.by_source[fresh.source], LEVEL / tests
    return [
        _finding(claim, fresh, certified, TESTS[claim](source, target, certified, certificate.claims, level), level)
        for claim in certificate.claims
    ]


def _finding(claim: Claim, fresh: PairRecord, certified: PairRecord, evidence: Evidence, level: float) -> Finding:
    gap, before = getattr(fresh, GAPS[claim]), getattr(fresh, f"{GAPS[claim]}_before", np.inf)
    # a gap no smaller than the untouched one supports nothing, however much of it sampling error may explain
    supported = evidence.power >= POWER and gap < before
    return Finding(
        source=fresh.source,
        claim=claim,
        gap=gap,
        claimed=getattr(certified, GAPS[claim]),
        where=evidence.where,
        found=float(evidence.found),
        allowed=float(evidence.allowed),
        p_value=evidence.p_value,
        power=evidence.power,
        verdict="contradicted" if evidence.p_value <= level else "supported" if supported else "cannot tell",
    )


def require(certificate: Certificate, fresh: Certificate, verification: Verification) -> None:
    """Raise `CertificateError` for the first claim that the rows contradict."""
    for f in verification.findings:
        if f.verdict == "contradicted":
            record = fresh.by_source[f.source]
            gaps = ", ".join(f"{GAPS[claim]} {getattr(record, GAPS[claim]):.3g}" for claim in certificate.claims)
            raise CertificateError(
                f"{certificate.method}: these rows contradict equal {f.claim} of {f.source!r}: {f.where} a gap of "
                f"{f.found:.3g} was found, and sampling error explains at most {f.allowed:.3g} (p = {f.p_value:.1g}; "
                f"on these rows {gaps}). The data have moved, or the fit had too few rows; fit again, with shrinkage "
                "if rows are few."
            )
