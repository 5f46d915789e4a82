"""`verify`: test the claims of a certificate on its bytes, and on rows with their sampling error."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Label, check_groups
from repsurgery.certificates.certificate import Certificate, Claim, PairRecord
from repsurgery.certificates.claims import SHARE, TESTS
from repsurgery.certificates.class_rows import ClassRows
from repsurgery.certificates.from_rows import Certified, carried_certificate, certificate_of, checked_rows, reissued
from repsurgery.errors import CertificateError, DataError

__all__ = ["FEWEST_ROWS", "LEVEL", "POWER", "Finding", "Verdict", "Verification", "as_support", "verdict_of", "verify"]

Verdict = Literal["supported", "contradicted", "cannot tell"]

LEVEL = 0.01
"""The chance that rows of the kind the map was fitted on contradict it, over all claims and classes together."""
POWER = 0.8
"""Below this chance of detecting a violation, rows that do not contradict a claim do not support it either."""
FEWEST_ROWS = 5
"""With fewer new rows of a class than this, `verify` raises an error."""
GAPS: dict[Claim, str] = {
    "means": "mean_gap",
    "covariances": "covariance_gap",
    "variances": "variance_gap",
    "neighbours": "ebbn",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of testing one claim about one class.

    Attributes
    ----------
    source : label
    claim : str
        What is promised to be equal: means, covariances, variances, neighbours.
    gap, claimed : float
        The gap on these rows, measured as in the certificate, and the certified gap.
    where : str
        What the strongest test examined: "along the concept" (the gap before steering), or "in norm".
    found, allowed : float
        The gap in that test, and the largest gap that would not have contradicted the claim.
    p_value : float
        Corrected for the tests of this claim, not for the number of claims.
    power : float
        The estimated chance of contradicting a map that leaves a fifth of the gap.
    verdict : {"supported", "contradicted", "cannot tell"}
    rows, effective : (source, target)
        The numbers of new rows, and of the independent rows that they are worth.
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
    rows: tuple[int, int] = (0, 0)
    effective: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict of rows on a certificate; without rows, only its bytes were compared.

    The tests assume that rows, or the groups that were given, are independent, that rows are unweighted, and that the
    scores they average have finite variance (for covariances and neighbours: finite fourth moments). Where the
    estimated variance depends on a few rows, the verdict is "cannot tell" rather than a false alarm.

    Attributes
    ----------
    verdict : {"supported", "contradicted", "cannot tell"}
        The worst of the findings; "cannot tell" if no rows were given.
    level, share : float
        The false-alarm rate over all tests, and the share of the gap for which ``power`` is computed.
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


def verify(steering: Certified, X: Any = None, z: Any = None, *, groups: Any = None) -> Verification:
    """Test the certificate of ``steering``: its digest, and its claims on new unweighted rows ``X`` (n, d), ``z`` (n,).

    Raises `CertificateError` where the bytes, a cast or the rows contradict the claims. The returned value says whether
    the rows support the claims, or are too few to tell.

    ``groups`` (n,) labels rows that are not independent, such as the tokens of one text. Sampling errors are then
    estimated between groups, and that of the fit from its effective number of rows: pass groups to `fit` as well.

    Guarantees
    ----------
    Rows like those of the fit contradict it at most at the stated level
    (test_false_alarms_stay_below_the_level_on_many_kinds_of_data).
    Rows in groups contradict it at most at that level too, if the groups are given
    (test_groups_hold_the_level_where_rows_alone_raise_false_alarms).
    Without the power to detect a fifth of the gap the answer is "cannot tell" (test_no_power_is_not_support).
    """
    issued, digest = carried_certificate(steering), steering.digest()
    if digest != issued.digest:
        raise CertificateError(
            f"{issued.method}: the maps or the gate are not the ones that were certified (digest "
            f"{digest[:12]}… against {issued.digest[:12]}…). They were altered or cast; fit again, or load the "
            "original file."
        )
    if X is None:
        return Verification()
    certificate = certificate_of(steering)
    rows, labels = checked_rows(steering, X, z)
    codes = check_groups(groups, len(rows), caller="verify")
    fresh = reissued(steering, rows, labels, codes)
    steered = steering(rows, labels)
    level = LEVEL / max(1, len(fresh.by_source) * len(certificate.claims))
    findings: list[Finding] = []
    for label, record in fresh.by_source.items():
        certified, of_source, of_target = certificate.by_source[label], labels == label, labels == record.target
        fitted, new = certified.effective_rows, record.effective_rows
        source, target = (
            ClassRows.of(rows[of], steered[of], fitted[i], new[i], None if codes is None else _numbered(codes[of]))
            for i, of in enumerate((of_source, of_target))
        )
        _require_enough(record, source.units, target.units, "rows" if codes is None else "groups of rows")
        findings += [
            _finding(claim, certificate.claims, record, certified, source, target, level)
            for claim in certificate.claims
        ]
    _require_uncontradicted(fresh, findings)
    return Verification(tuple(findings))


def _numbered(codes: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """Return the groups of some rows, numbered from 0; None where every row is its own group."""
    known, numbers = np.unique(codes, return_inverse=True)
    return numbers.astype(np.intp) if len(known) < len(codes) else None


def _require_enough(record: PairRecord, source: int, target: int, what: str) -> None:
    if min(source, target) < FEWEST_ROWS:
        raise DataError(
            f"verify got {source} {what} of {record.source!r} and {target} of {record.target!r}; it needs at least "
            f"{FEWEST_ROWS} of each to estimate their sampling error. Pass more {what}."
        )


def _finding(
    claim: Claim,
    claims: tuple[Claim, ...],
    fresh: PairRecord,
    certified: PairRecord,
    source: ClassRows,
    target: ClassRows,
    level: float,
) -> Finding:
    evidence = TESTS[claim](source, target, certified, claims, level)
    gap, before = getattr(fresh, GAPS[claim]), getattr(fresh, f"{GAPS[claim]}_before", np.inf)
    # a gap no smaller than the one before steering supports nothing, however much of it sampling error may explain
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
        rows=(fresh.rows_source, fresh.rows_target),
        effective=fresh.effective_rows,
    )


def _require_uncontradicted(fresh: Certificate, findings: list[Finding]) -> None:
    for f in findings:
        if f.verdict == "contradicted":
            record = fresh.by_source[f.source]
            gaps = ", ".join(f"{GAPS[claim]} {getattr(record, GAPS[claim]):.3g}" for claim in fresh.claims)
            raise CertificateError(
                f"{fresh.method}: these rows contradict equal {f.claim} of {f.source!r}: {f.where} the gap is "
                f"{f.found:.3g}, and sampling error explains at most {f.allowed:.3g} (p = {f.p_value:.1g}; "
                f"on these rows {gaps}). The data have changed, or the fit had too few rows; fit again, with shrinkage "
                "if rows are few."
            )


def verdict_of(verify: Callable[[], Verification]) -> Verdict:
    """Return the verdict of ``verify()``, or "contradicted" where it raises a `CertificateError`."""
    try:
        return verify().verdict
    except CertificateError:
        return "contradicted"


def as_support(verdict: Verdict | None) -> bool | None:
    """Return whether the claims are supported; None for "cannot tell" and where nothing was verified."""
    return {"supported": True, "contradicted": False}.get(verdict or "")
