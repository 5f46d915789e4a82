"""`certify`: measure a certificate again on rows, including what moments cannot show (gate, U-statistic, probes)."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, xlogy

from repsurgery.affine import AffineMap
from repsurgery.arrays import Label, Matrix, Rows, check_groups, check_labels, check_rows, require_finite
from repsurgery.certificates.certificate import Certificate, PairRecord, summarise
from repsurgery.certificates.continuous import ContinuousCertificate
from repsurgery.certificates.continuous_rows import certify_continuous
from repsurgery.certificates.effect import EffectCertificate
from repsurgery.certificates.from_moments import Method, Solution, issue
from repsurgery.certificates.kinds import AnyCertificate
from repsurgery.certificates.on_rows import measured_on_rows
from repsurgery.errors import DataError, LabelError, SurgeryError
from repsurgery.gates import Gate
from repsurgery.moments import ClassMoments, Moments
from repsurgery.moments.closed_forms import (
    covariance_gap,
    expected_neighbour_bias,
    mean_gap,
    neighbour_bias_of_distinct_rows,
)
from repsurgery.moments.pooled import whitening
from repsurgery.moments.shrinkage import FitRows

__all__ = ["Certified", "certify", "checked_rows", "logistic_probe", "prior_entropy", "reissued"]

SEPARATED = 1e-3
"""Below this loss (nats) the classes are linearly separable and an unpenalised probe has no finite optimum."""


class Certified(Protocol):
    """What can be certified and verified: maps and a gate with their certificate, such as a `SteeringFunction`."""

    @property
    def maps(self) -> Mapping[Label | None, AffineMap]:
        """The map of each steered class; under None the map of every class."""

    @property
    def gate(self) -> Gate:
        """The rule that assigns rows to classes."""

    @property
    def classes(self) -> tuple[Label, ...]:
        """Every class known at fit."""

    @property
    def certificate(self) -> AnyCertificate | None:
        """The certificate of the fit."""

    @property
    def dim(self) -> int:
        """The number of features d."""

    def __call__(self, X: Any, concept: Any = None) -> Rows:
        """Steer rows (n, d): by the gate, or by the given labels (n,)."""

    def assign(self, X: Rows, concept: Any = None) -> NDArray[Any]:
        """Return the class of each row (n,)."""

    def digest(self) -> str:
        """Return the SHA-256 of maps and gate."""


def certify(steering: Certified, X: Any, z: Any, *, groups: Any = None) -> Certificate | ContinuousCertificate:
    """Return the certificate measured again on rows ``X`` (n, d) with labels ``z`` (n,), or a continuous concept.

    Ranks, feasibility and ``optimal_cost`` stay those of the fit; everything else is measured on the rows,
    including the gate's Youden J, the gaps that remain when the gate decides, and a converged logistic probe.
    ``groups`` (n,) labels rows that are not independent; they change only the effective numbers of rows.
    """
    if isinstance(steering.certificate, ContinuousCertificate):
        return certify_continuous(steering, steering.certificate, X, z, groups=groups)
    rows, labels = checked_rows(steering, X, z)
    certificate = reissued(steering, rows, labels, check_groups(groups, len(rows), caller="certify"))
    by_labels = steering(rows, labels)
    by_gate = by_labels
    assigned: NDArray[Any] | None = labels
    if steering.gate.reads != "labels":
        by_gate = steering(rows)
        # a soft gate assigns no row
        assigned = steering.assign(rows) if steering.gate.reads == "rows" and steering.gate.hard else None
    gated = ClassMoments.of(by_gate, labels)
    # the (1 − J) law holds for one shift: other maps act differently on the rows that a gate misses
    one_shift = certificate.method == "MeanMatching" and bool(certificate.claims) and len(certificate.by_source) == 1
    records = {}
    for label, record in certificate.by_source.items():
        pair = (labels == label) | (labels == record.target)
        records[label] = replace(
            record,
            **_gate_measures(record, gated[label], gated[record.target], labels, assigned, one_shift=one_shift),
            ebbn_u=_without_self_pairs(ClassMoments.of(by_labels[pair], labels[pair]), label, record.target),
            prior_entropy=prior_entropy(labels[pair]),
            probe_loss=logistic_probe(by_labels[pair], labels[pair]),
            gated_probe_loss=logistic_probe(by_gate[pair], labels[pair]),
        )
    return replace(certificate, by_source=records, **summarise(records, certificate.population))


def carried_certificate(steering: Certified) -> AnyCertificate:
    """Return the certificate that ``steering`` carries, or raise a `SurgeryError`."""
    if steering.certificate is None:
        raise SurgeryError("This steering function carries no certificate; fit an estimator to get one.")
    return steering.certificate


def certificate_of(steering: Certified) -> Certificate:
    """Return the certificate that ``steering`` carries, or raise a `SurgeryError` if rows cannot measure it again."""
    certificate = carried_certificate(steering)
    if isinstance(certificate, ContinuousCertificate):
        raise SurgeryError("The concept of this map is continuous, and classes cannot measure it. Pass its numbers.")
    if isinstance(certificate, EffectCertificate):
        raise SurgeryError(
            f"The certificate of {certificate.method} states an effect on what a model writes, which rows do not "
            "show. Call verify() without rows to compare its digest, and measure the effect on generations."
        )
    return certificate


def checked_rows(steering: Certified, X: Any, z: Any) -> tuple[Rows, NDArray[Any]]:
    """Return rows (n, d) in float64 and labels (n,) of every class that the certificate names."""
    rows = check_rows(X, dim=steering.dim, caller="certify")
    require_finite(rows, caller="certify")
    labels, codes = check_labels(z, len(rows), caller="certify")
    certificate = certificate_of(steering)
    _require_all(labels, steering.classes, "unknown to the fit", needed=labels, got=steering.classes)
    others = [label for label in (certificate.target, certificate.neutral) if label is not None]
    named = [*certificate.by_source, *others]
    _require_all(named, labels, "missing from these rows", needed=named, got=labels)
    return rows.astype(np.float64, copy=False), np.array(labels)[codes]


def _require_all(wanted: Iterable[Label], known: Iterable[Label], problem: str, *, needed: Any, got: Any) -> None:
    absent = [label for label in wanted if label not in known]
    if absent:
        raise LabelError(
            f"Classes {absent} are {problem}: needed {list(needed)}, got {list(got)}. Pass rows of each class."
        )


_OF_THE_FIT = ("residual_bound", "shrinkage_moved", "alpha_source", "alpha_target")
"""What rows cannot measure again."""


def reissued(steering: Certified, X: Rows, z: NDArray[Any], groups: NDArray[np.intp] | None = None) -> Certificate:
    """Return the certificate issued on the moments of checked rows; the bounds of the fit stay as they were."""
    old = certificate_of(steering)
    method = Method(
        old.method, old.claims, old.population, old.shrinkage, old.ridge, old.target, old.neutral, old.alpha
    )
    solutions = {
        label: Solution(
            steering.maps[label if label in steering.maps else None],
            record.optimal_cost,
            record.feasible,
            record.rank_source,
            record.rank_target,
        )
        for label, record in old.by_source.items()
    }
    moments = ClassMoments.of(X, z, groups=groups)
    codes = np.array([moments.labels.index(label) for label in z.tolist()])
    new = issue(method, moments, solutions)
    new = measured_on_rows(new, steering.maps, FitRows(X, codes, moments.labels, None, groups), moments, most=len(X))
    records = {}
    for label, record in new.by_source.items():
        fitted = old.by_source[label]
        records[label] = replace(record, **{name: getattr(fitted, name) for name in _OF_THE_FIT})
    return replace(new, by_source=records, data="given rows", digest=old.digest, **summarise(records, old.population))


def _gate_measures(
    record: PairRecord,
    source: Moments,
    target: Moments,
    z: NDArray[Any],
    assigned: NDArray[Any] | None,
    *,
    one_shift: bool,
) -> dict[str, Any]:
    """Return what the gate leaves of one pair of classes; ``assigned`` (n,) is None where no gate decides."""
    J = None
    if assigned is not None:
        hit = assigned == record.source
        J = float(hit[z == record.source].mean() - hit[z == record.target].mean())
    return {
        "youden": J,
        "predicted_mean_gap": abs(1 - J) * record.mean_gap_before if J is not None and one_shift else None,
        "gated_mean_gap": mean_gap(source, target),
        "gated_covariance_gap": covariance_gap(source, target),
        "gated_ebbn": expected_neighbour_bias(source, target),
    }


def _without_self_pairs(steered: ClassMoments, source: Label, target: Label) -> float | None:
    return neighbour_bias_of_distinct_rows(steered[source], steered[target]) if steered[source].count > 1 else None


def prior_entropy(z: NDArray[Any]) -> float:
    """Return the entropy in nats of the label frequencies: the log-loss of the best constant prediction."""
    p = np.unique(z, return_counts=True)[1] / len(z)
    return float(-xlogy(p, p).sum())


def logistic_probe(X: Matrix, z: NDArray[Any]) -> float:
    """Return the training log-loss of an unpenalised logistic probe, converged on whitened features.

    Whitening changes nothing that an unpenalised probe can express, and makes it converge, in whatever units the
    columns are (test_a_wide_column_does_not_hide_from_a_probe_what_a_narrow_one_tells). On separable data the loss
    falls towards zero until the optimiser stops.
    """
    from sklearn.linear_model import LogisticRegression  # slow to import, and steering itself does not need it

    if len(np.unique(z)) < 2:
        raise DataError("A probe needs rows of at least two classes; pass rows of source and target.")
    m = Moments.of(X)
    U = whitening(m).apply((X - m.mean).T).T
    U = U if U.shape[1] else np.zeros((len(X), 1))
    probe = LogisticRegression(C=np.inf, solver="lbfgs", tol=1e-8, max_iter=2000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        probe.fit(U, z)
    scores = probe.decision_function(U)
    logits = np.column_stack([np.zeros_like(scores), scores]) if scores.ndim == 1 else scores
    codes = np.searchsorted(probe.classes_, z)
    loss = float(-log_softmax(logits, axis=1)[np.arange(len(codes)), codes].mean())
    if loss > SEPARATED:
        for warning in caught:
            warnings.warn(warning.message, warning.category, stacklevel=2)
    return loss
