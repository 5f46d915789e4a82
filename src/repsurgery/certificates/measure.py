"""Re-issue a certificate on rows: what only data can tell, gate and probes included."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, xlogy

from repsurgery.arrays import Matrix, Rows
from repsurgery.certificates.certificate import Certificate, PairRecord, summarise
from repsurgery.errors import DataError
from repsurgery.moments import ClassMoments, Moments
from repsurgery.moments.closed_forms import covariance_gap, expected_neighbour_bias, mean_gap

__all__ = ["logistic_probe", "measured", "prior_entropy"]

SEPARATED = 1e-3
"""Below this loss (nats) the classes are linearly separable and an unpenalised probe has no finite optimum."""


def measured(
    certificate: Certificate,
    z: NDArray[Any],
    by_labels: Rows,
    by_gate: Rows,
    assigned: NDArray[Any] | None,
) -> Certificate:
    """Return ``certificate`` with the fields that need rows.

    Parameters
    ----------
    certificate : Certificate
        Issued on the moments of the same rows.
    z : (n,) labels
    by_labels, by_gate : (n, d) float64 arrays
        The rows steered by their labels, and as the gate decides.
    assigned : (n,) labels, or None
        What the gate said; None where it does not decide (always).
    """
    gated = ClassMoments.of(by_gate, z)
    # the (1 − J) law holds for one shift: other maps act differently on the rows a gate misses
    by_shift = certificate.method == "MeanMatching" and len(certificate.by_source) == 1
    records = {}
    for label, record in certificate.by_source.items():
        rows = (z == label) | (z == record.target)
        records[label] = replace(
            record,
            **_gate_fields(record, gated[label], gated[record.target], z, assigned, by_shift=by_shift),
            ebbn_u=_without_self_pairs(record, ClassMoments.of(by_labels[rows], z[rows])),
            prior_entropy=prior_entropy(z[rows]),
            probe_loss=logistic_probe(by_labels[rows], z[rows]),
            gated_probe_loss=logistic_probe(by_gate[rows], z[rows]),
        )
    return replace(certificate, data="given rows", by_source=records, **summarise(records, certificate.population))


def _gate_fields(
    record: PairRecord,
    steered: Moments,
    reference: Moments,
    z: NDArray[Any],
    assigned: NDArray[Any] | None,
    *,
    by_shift: bool,
) -> dict[str, Any]:
    J = None
    if assigned is not None:
        hit = assigned == record.source
        J = float(hit[z == record.source].mean() - hit[z == record.target].mean())
    return {
        "youden": J,
        "predicted_mean_gap": abs(1 - J) * record.mean_gap_before if J is not None and by_shift else None,
        "gated_mean_gap": mean_gap(steered, reference),
        "gated_covariance_gap": covariance_gap(steered, reference),
        "gated_ebbn": expected_neighbour_bias(steered, reference),
    }


def _without_self_pairs(record: PairRecord, steered: ClassMoments) -> float | None:
    """EBBN as a U-statistic: within-class pairs without the n₀ pairs of a row with itself."""
    source, target = steered[record.source], steered[record.target]
    if source.count < 2:
        return None
    within = 2 * source.trace * source.count / (source.count - 1)
    return abs(within - (source.trace + target.trace + mean_gap(source, target) ** 2))


def prior_entropy(z: NDArray[Any]) -> float:
    """Return the entropy in nats of the label frequencies: the log-loss of the best constant prediction."""
    p = np.unique(z, return_counts=True)[1] / len(z)
    return float(-xlogy(p, p).sum())


def logistic_probe(X: Matrix, z: NDArray[Any]) -> float:
    """Return the training log-loss of an unpenalised logistic probe, converged on whitened features.

    Whitening changes nothing an unpenalised probe can express and makes it converge; on separable data the
    loss falls towards zero until the optimiser stops.
    """
    from sklearn.linear_model import LogisticRegression  # a quarter of a second of imports, only for probes

    if len(np.unique(z)) < 2:
        raise DataError("A probe needs rows of at least two classes; pass rows of source and target.")
    found = Moments.of(X).range()
    U = (X - X.mean(axis=0)) @ (found.basis / found.scale) if len(found.scale) else np.zeros((len(X), 1))
    probe = LogisticRegression(C=np.inf, solver="lbfgs", tol=1e-8, max_iter=2000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        probe.fit(U, z)
    loss = _log_loss(probe.decision_function(U), np.searchsorted(probe.classes_, z))
    if loss > SEPARATED:
        for warning in caught:
            warnings.warn(warning.message, warning.category, stacklevel=2)
    return loss


def _log_loss(scores: Matrix, codes: NDArray[np.intp]) -> float:
    logits = np.column_stack([np.zeros_like(scores), scores]) if scores.ndim == 1 else scores
    return float(-log_softmax(logits, axis=1)[np.arange(len(codes)), codes].mean())
