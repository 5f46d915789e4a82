"""Measure and test the erasure of a continuous concept on rows.

Every covariance is the mean of products (h − h̄)(z_j − z̄_j), one for each row. That erasure left none is therefore the
claim that these products have the mean zero, and is tested as the claim of equal means is (`claims.equal_means`),
against a class of zeros.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from repsurgery.arrays import Matrix, Rows, check_groups, check_rows, require_finite
from repsurgery.certificates.claims import equal_means
from repsurgery.certificates.class_rows import ClassRows
from repsurgery.certificates.continuous import ContinuousCertificate, issue_continuous
from repsurgery.certificates.findings import FEWEST_ROWS, LEVEL, Finding, finding_of
from repsurgery.certificates.from_moments import Method
from repsurgery.certificates.on_rows import columns_on_rows
from repsurgery.concepts import check_continuous
from repsurgery.errors import CertificateError, DataError, LabelError
from repsurgery.moments import CrossMoments

if TYPE_CHECKING:
    from repsurgery.certificates.from_rows import Certified

__all__ = ["certify_continuous", "checked_concept", "verify_columns"]


def checked_concept(
    steering: "Certified", issued: ContinuousCertificate, X: Any, z: Any, *, caller: str
) -> tuple[Rows, Matrix]:
    """Return rows (n, d) and a concept (n, k) with as many columns as the certificate has."""
    rows = check_rows(X, dim=steering.dim, caller=caller)
    require_finite(rows, caller=caller)
    concept = check_continuous(z, len(rows), caller=caller)
    if concept.shape[1] != issued.columns:
        raise LabelError(
            f"{caller} got a concept of {concept.shape[1]} columns; the map was fitted on {issued.columns}. Pass the "
            "columns of the fit, in their order."
        )
    return rows, concept


def certify_continuous(
    steering: "Certified", issued: ContinuousCertificate, X: Any, z: Any, *, groups: Any = None
) -> ContinuousCertificate:
    """Return the certificate measured again on rows ``X`` (n, d) with the concept ``z`` (n,) or (n, k)."""
    rows, concept = checked_concept(steering, issued, X, z, caller="certify")
    (m,) = steering.maps.values()
    method = Method(issued.method, (), "all", issued.shrinkage, issued.ridge)
    new = issue_continuous(method, CrossMoments.of(rows, concept, groups=groups), m, issued.optimal_cost)
    return replace(columns_on_rows(new, m, rows, concept, None), data="given rows", digest=issued.digest)


def verify_columns(
    steering: "Certified", issued: ContinuousCertificate, X: Any, z: Any, *, groups: Any = None
) -> tuple[Finding, ...]:
    """Return the test of each column on new rows; raise `CertificateError` where one contradicts the erasure."""
    rows, concept = checked_concept(steering, issued, X, z, caller="verify")
    fresh = certify_continuous(steering, issued, rows, concept, groups=groups)
    level = LEVEL / issued.columns
    findings = []
    for j, products in enumerate(_products(steering, issued, fresh, rows, concept, groups)):
        if products.units < FEWEST_ROWS:
            raise DataError(
                f"verify got {products.units} independent rows; it needs at least {FEWEST_ROWS} to estimate their "
                "sampling error. Pass more rows."
            )
        zeros = replace(products, **{name: np.zeros_like(getattr(products, name)) for name in _ARRAYS})
        evidence = equal_means(products, zeros, issued.covariance_after[j], level)
        finding = finding_of(
            evidence,
            source=j,
            claim="no covariance",
            gap=fresh.covariance_after[j],
            before=fresh.covariance_before[j],
            claimed=issued.covariance_after[j],
            level=level,
            rows=(fresh.rows, fresh.rows),
            effective=(fresh.effective_rows, fresh.effective_rows),
        )
        findings.append(finding)
    for f in findings:
        if f.verdict == "contradicted":
            raise CertificateError(
                f"{issued.method}: these rows contradict that column {f.source} of the concept has no covariance with "
                f"the erased rows: {f.where} it is {f.found:.3g}, and sampling error explains at most {f.allowed:.3g} "
                f"(p = {f.p_value:.1g}; a linear probe explains {fresh.r2_after[int(f.source)]:.2g} of its variance). "
                "The data have changed, or the fit had too few rows; fit again."
            )
    return tuple(findings)


_ARRAYS = ("before", "after", "mean_before", "mean_after")


def _products(
    steering: "Certified",
    issued: ContinuousCertificate,
    fresh: ContinuousCertificate,
    X: Rows,
    Z: Matrix,
    groups: Any,
) -> Iterator[ClassRows]:
    """Yield, for each column, the products of centred rows and standardised values, before and after erasure."""
    codes = check_groups(groups, len(X), caller="verify")
    if codes is not None:
        codes = np.unique(codes, return_inverse=True)[1].astype(np.intp) if len(set(codes)) < len(codes) else None
    before = np.asarray(X, dtype=np.float64)
    after = steering(before)
    before, after = before - before.mean(axis=0), after - after.mean(axis=0)
    for column in Z.T:
        z = ((column - column.mean()) / column.std())[:, None]
        yield ClassRows.of(before * z, after * z, issued.effective_rows, fresh.effective_rows, codes)
