"""Sentences on what the texts of a fit support: a covariance for each label, one common covariance, or neither."""

from repsurgery.certificates import Certificate, ContinuousCertificate, PairRecord
from repsurgery.steering.base import BaseSteering

__all__ = ["support_notes"]

NEGLIGIBLE = 0.005
"""Below this alpha, which is shown as 0.00, there is nothing to say."""


def support_notes(estimator: BaseSteering, unit: str) -> tuple[str, ...]:
    """Return one sentence for each pair of labels whose covariances the fitting rows do not support, or only in part.

    In coordinates in which a covariance is the identity, its estimate from n independent rows has a relative squared
    error of about (d + 1)/n: with n ≤ d the error is as large as the covariance itself.

    Parameters
    ----------
    estimator : BaseSteering
    unit : str
        What a row is: "texts", "tokens" or "rows".

    Guarantees
    ----------
    Few texts are said not to support a covariance, many are not
    (test_few_texts_do_not_support_a_covariance_and_many_do).
    """
    certificate, d = estimator.certificate_, estimator.n_features_in_
    if isinstance(certificate, ContinuousCertificate):
        return ()
    notes = (_note(certificate, pair, d, unit) for pair in certificate.by_source.values())
    # the pairs of an eraser often say the same
    return tuple(dict.fromkeys(note for note in notes if note))


def _note(certificate: Certificate, pair: PairRecord, d: int, unit: str) -> str:
    few = min(pair.effective_rows) <= d
    rows = f"{_quantity(pair, d, unit)} in {d} dimensions"
    alphas = pair.alpha_source, pair.alpha_target
    if certificate.alpha == "auto" and None not in alphas:
        return _pooled(pair, rows, few=few)
    unshrunk = certificate.shrinkage == "none" or alphas == (0, 0)
    if few and unshrunk and "covariances" in certificate.claims:
        return (
            f"Warning: {rows} do not support a covariance, and it is not shrunk, so that the map is not expected to "
            "keep its claims on other texts: choose another --shrinkage, or add texts."
        )
    return ""


def _pooled(pair: PairRecord, rows: str, *, few: bool) -> str:
    source, target = pair.alpha_source or 0.0, pair.alpha_target or 0.0
    if source == target == 1 and few:
        return f"{rows} do not support a covariance: pooled shrinkage, alpha = 1."
    if source == target == 1:
        return (
            f"Pooled shrinkage, alpha = 1: the covariances of {pair.source} and {pair.target} do not differ by more "
            "than their sampling error, and their common one is used."
        )
    if max(source, target) < NEGLIGIBLE:
        return ""
    return (
        f"{rows} support the covariances in part: pooled shrinkage, alpha = {source:.2f} ({pair.source}), "
        f"{target:.2f} ({pair.target}), which shrinks them towards their common one."
    )


def _quantity(pair: PairRecord, d: int, unit: str) -> str:
    rows, effective, label = pair.rows_source + pair.rows_target, sum(pair.effective_rows), ""
    if effective > d:
        # both labels together exceed the dimensions, so that the smaller one explains the sentence
        sides = zip(pair.effective_rows, (pair.rows_source, pair.rows_target), (pair.source, pair.target), strict=True)
        effective, rows, smaller = min(sides, key=lambda side: side[0])
        label = f" labelled {smaller}"
    return f"{rows} {unit}{label}" + ("" if round(effective) == rows else f", worth {effective:.0f} independent ones,")
