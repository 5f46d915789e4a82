"""Certify and verify a steering function on rows."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.affine import AffineMap
from repsurgery.arrays import Label, Rows, check_labels, check_rows, require_finite
from repsurgery.certificates import Certificate, PairRecord
from repsurgery.certificates.certificate import summarise
from repsurgery.certificates.class_rows import ClassRows
from repsurgery.certificates.from_moments import Method, Solution, issue
from repsurgery.certificates.measure import measured
from repsurgery.certificates.verify import Finding, Verification, check_digest, judge, require
from repsurgery.errors import DataError, LabelError, SurgeryError
from repsurgery.gates import AlwaysGate, LabelsGate
from repsurgery.moments import ClassMoments
from repsurgery.steering.function import EVERYBODY, SteeringFunction

__all__ = ["certify", "verify"]

FEWEST_ROWS = 5
"""Below this many fresh rows of a class `verify` refuses to judge."""


def certify(steering: SteeringFunction, X: Any, z: Any) -> Certificate:
    """Return the certificate re-issued on rows ``X`` (n, d) with labels ``z`` (n,).

    Ranks, feasibility and ``optimal_cost`` stay those of the fit; everything else is measured on the rows,
    including the gate's Youden J, the gaps it leaves, and a converged logistic probe.
    """
    rows, labels = _checked(steering, X, z)
    certificate = _reissued(steering, rows, labels)
    by_labels = steering(rows, labels)
    if isinstance(steering.gate, LabelsGate):
        return measured(certificate, labels, by_labels, by_labels, labels)
    assigned = None if isinstance(steering.gate, AlwaysGate) else steering.assign(rows)
    return measured(certificate, labels, by_labels, steering(rows), assigned)


def verify(steering: SteeringFunction, X: Any = None, z: Any = None) -> Verification:
    """Hold the certificate to its claims, on the bytes and on fresh unweighted rows ``X`` (n, d) with labels ``z``.

    Raises `CertificateError` where bytes, a cast or the rows contradict the claims. What is returned says whether the
    rows support them, or are too few to tell.

    Guarantees
    ----------
    Rows like those of the fit contradict it at most at the stated level
    (test_false_alarms_stay_below_the_level_on_many_kinds_of_data).
    Without the power to notice a fifth of the gap the answer is "cannot tell" (test_no_power_is_not_support).
    """
    certificate = _certificate(steering)
    check_digest(certificate, steering.digest())
    if X is None:
        return Verification()
    rows, labels = _checked(steering, X, z)
    fresh = _reissued(steering, rows, labels)
    steered = steering(rows, labels)
    tests = max(1, len(fresh.by_source) * len(certificate.claims))
    findings: list[Finding] = []
    for label, record in fresh.by_source.items():
        old, of_source, of_target = certificate.by_source[label], labels == label, labels == record.target
        if min(of_source.sum(), of_target.sum()) < FEWEST_ROWS:
            raise DataError(
                f"verify got {of_source.sum()} rows of {label!r} and {of_target.sum()} of {record.target!r}; below "
                f"{FEWEST_ROWS} of each nothing can be said of their sampling error. Pass more rows."
            )
        source = ClassRows.of(rows[of_source], steered[of_source], old.rows_source)
        target = ClassRows.of(rows[of_target], steered[of_target], old.rows_target)
        findings += judge(certificate, record, source, target, tests)
    verification = Verification(tuple(findings))
    require(certificate, fresh, verification)
    return verification


def _certificate(steering: SteeringFunction) -> Certificate:
    if steering.certificate is None:
        raise SurgeryError("This steering function carries no certificate; fit an estimator to get one.")
    return steering.certificate


def _checked(steering: SteeringFunction, X: Any, z: Any) -> tuple[Rows, NDArray[Any]]:
    rows = check_rows(X, dim=steering.dim, caller="certify")
    require_finite(rows, caller="certify")
    found, codes = check_labels(z, len(rows), caller="certify")
    certificate = _certificate(steering)
    _require(found, steering.classes, "unknown to the fit", have=steering.classes, want=found)
    needed = [
        *certificate.by_source,
        *(c for c in (certificate.target, certificate.neutral) if c is not None),
    ]
    _require(needed, found, "missing from these rows", have=found, want=needed)
    return rows.astype(np.float64, copy=False), np.array(found)[codes]


def _require(wanted: Iterable[Label], known: Iterable[Label], what: str, *, have: Any, want: Any) -> None:
    absent = [label for label in wanted if label not in known]
    if absent:
        raise LabelError(
            f"Classes {absent} are {what}: needed {list(want)}, got {list(have)}. Pass rows of each class."
        )


def _reissued(steering: SteeringFunction, X: Rows, z: NDArray[Any]) -> Certificate:
    old = _certificate(steering)
    method = Method(old.method, old.claims, old.population, old.shrinkage, old.ridge, old.target, old.neutral)
    solutions = {label: _solution(_map_for(steering, label), record) for label, record in old.by_source.items()}
    new = issue(method, ClassMoments.of(X, z), solutions)
    kept = {
        label: replace(
            record,
            residual_bound=old.by_source[label].residual_bound,
            shrinkage_moved=old.by_source[label].shrinkage_moved,
        )
        for label, record in new.by_source.items()
    }
    return replace(new, by_source=kept, data="given rows", digest=old.digest, **summarise(kept, old.population))


def _map_for(steering: SteeringFunction, label: Label) -> AffineMap:
    return steering.maps[label if label in steering.maps else EVERYBODY]


def _solution(m: AffineMap, record: PairRecord) -> Solution:
    return Solution(m, record.optimal_cost, record.feasible, record.rank_source, record.rank_target)
