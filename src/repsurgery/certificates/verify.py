"""`verify`: test the claims of a certificate on its bytes, and on rows with their sampling error."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import check_groups
from repsurgery.certificates.certificate import Certificate, Claim, PairRecord
from repsurgery.certificates.claims import TESTS
from repsurgery.certificates.class_rows import ClassRows
from repsurgery.certificates.continuous import ContinuousCertificate
from repsurgery.certificates.continuous_rows import verify_columns
from repsurgery.certificates.findings import FEWEST_ROWS, LEVEL, POWER, Finding, Verdict, Verification, finding_of
from repsurgery.certificates.from_rows import Certified, carried_certificate, certificate_of, checked_rows, reissued
from repsurgery.errors import CertificateError, DataError

__all__ = ["FEWEST_ROWS", "LEVEL", "POWER", "Finding", "Verdict", "Verification", "as_support", "verdict_of", "verify"]

GAPS: dict[Claim, str] = {
    "means": "mean_gap",
    "covariances": "covariance_gap",
    "variances": "variance_gap",
    "neighbours": "ebbn",
}


def verify(steering: Certified, X: Any = None, z: Any = None, *, groups: Any = None) -> Verification:
    """Test the certificate of ``steering``: its digest, and its claims on new unweighted rows ``X`` (n, d), ``z`` (n,).

    Of a continuous concept, ``z`` are its numbers, (n,) or (n, k).

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
    So do rows with a continuous concept (test_false_alarms_of_a_continuous_concept_stay_below_the_level).
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
    if isinstance(issued, ContinuousCertificate):
        return Verification(verify_columns(steering, issued, X, z, groups=groups))
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
    return finding_of(
        evidence,
        source=fresh.source,
        claim=claim,
        gap=getattr(fresh, GAPS[claim]),
        before=getattr(fresh, f"{GAPS[claim]}_before", np.inf),
        claimed=getattr(certified, GAPS[claim]),
        level=level,
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
