"""Certificates in tables: one certificate on its own, and those of a study on fitted and held-out rows."""

from collections.abc import Callable, Mapping
from typing import Any

from repsurgery.certificates import ContinuousCertificate, EffectCertificate, PairRecord
from repsurgery.certificates.kinds import AnyCertificate
from repsurgery.certificates.shown import left_out, measured_on
from repsurgery.studies.common.report.numbers import number, word
from repsurgery.studies.common.report.tables import Column, Table, shown_label

__all__ = ["CERTIFICATE_COLUMNS", "certificate_table", "certificates_caption", "is_certified", "probed"]


def _rows(count: int, effective: float) -> str:
    """Return the number of rows, and in brackets of how many independent rows, where that is another number."""
    return str(count) if round(effective) == count else f"{count} ({effective:.0f})"


_CLAIMS = {"means": "equal means", "covariances": "equal covariances", "variances": "equal variances"}
_MEASURES: tuple[tuple[str, Callable[[PairRecord], str]], ...] = (
    (
        "rows (effective)",
        lambda p: f"{_rows(p.rows_source, p.effective_rows[0])} / {_rows(p.rows_target, p.effective_rows[1])}",
    ),
    ("mean gap before", lambda p: number(p.mean_gap_before)),
    ("mean gap", lambda p: number(p.mean_gap)),
    ("covariance gap before", lambda p: number(p.covariance_gap_before)),
    ("covariance gap", lambda p: number(p.covariance_gap)),
    ("EBBN before", lambda p: number(p.ebbn_before)),
    ("EBBN", lambda p: number(p.ebbn)),
    ("probe R² before", lambda p: number(probed(p.probe_r2_before))),
    ("probe R²", lambda p: number(probed(p.probe_r2))),
    ("cost", lambda p: number(p.cost)),
    ("optimal cost", lambda p: number(p.optimal_cost)),
    ("gain", lambda p: number(p.gain)),
    ("feasible", lambda p: "yes" if p.feasible else "no"),
    ("pooled, alpha", lambda p: _alphas(p)),
    ("moved by shrinkage", lambda p: number(p.shrinkage_moved)),
    ("gate's Youden J", lambda p: number(p.youden)),
    ("mean gap as gated", lambda p: number(p.gated_mean_gap)),
)
_OF_THE_MAP = ("optimal cost", "gain", "feasible", "pooled, alpha", "moved by shrinkage")
"""Measures of the fitted map, which other rows do not change."""


def certificate_table(certificate: AnyCertificate, held_out: Any = None) -> Table:
    """Return one certificate, measure by measure: before, after, and what the method claims.

    With ``held_out``, the certificate of the same map on held-out rows, each pair of classes has two columns.
    """
    if isinstance(certificate, EffectCertificate):
        return _effect_table(certificate)
    if isinstance(certificate, ContinuousCertificate):
        return _continuous_table(certificate, held_out)
    pairs = certificate.by_source
    # the pairs of an eraser name the class that each class is compared with, which is not a target
    erases = certificate.target is None
    arrows = [f"{shown_label(k)} → {'erased' if erases else shown_label(p.target)}" for k, p in pairs.items()]
    columns = [(p, False) for p in pairs.values()]
    measured = measured_on(certificate)
    if held_out is not None:
        arrows = [f"{arrow}, {rows}" for arrow in arrows for rows in ("fitted", "held out")]
        columns = [column for k, p in pairs.items() for column in ((p, False), (held_out.by_source[k], True))]
        measured += "; and on held-out rows"
    rows = (
        (name, *("–" if new and name in _OF_THE_MAP else text(p) for p, new in columns)) for name, text in _MEASURES
    )
    claims = ", ".join(_CLAIMS.get(claim, f"equal {claim}") for claim in certificate.claims)
    caption = (
        f"{certificate.method} {f'claims {claims}' if claims else 'states no guarantees'}. "
        f"Measured on {measured}; shrinkage {certificate.shrinkage}"
        + (f" ({certificate.ridge:g})" if certificate.ridge is not None else "")
        + (f" (alpha {word(certificate.alpha)})" if certificate.alpha is not None else "")
        + f"; digest {certificate.digest[:16]}…"
        + ("" if certificate.held_out is None else f". {left_out(certificate)}")
    )
    return Table("Certificate", ("measure", *arrows), tuple(row for row in rows if set(row[1:]) != {"–"}), caption)


def _continuous_table(certificate: ContinuousCertificate, held_out: ContinuousCertificate | None) -> Table:
    measured = {"fitted": certificate} | ({} if held_out is None else {"held out": held_out})
    rows = [("rows", *(f"{c.rows:,}" for c in measured.values()))]
    for j in range(certificate.columns):
        of = "" if certificate.columns == 1 else f", column {j}"
        for name, words in (("r2", "linear probe R²"), ("covariance", "covariance with the concept")):
            for when in ("before", "after"):
                figures = (number(getattr(c, f"{name}_{when}")[j]) for c in measured.values())
                rows.append((f"{words}{of}, {when}", *figures))
    if certificate.held_out is not None:
        h = certificate.held_out
        for j in range(certificate.columns):
            left = f"{number(h.r2_before[j])} → {number(h.r2_after[j])}"
            words = f"linear probe R² on rows left out, column {j}, {h.folds} folds"
            rows.append((words, left, *["–"] * (len(measured) - 1)))
    rows += [("cost", *(number(c.cost) for c in measured.values()))]
    rows += [(name, number(value), *["–"] * (len(measured) - 1)) for name, value in _of_map(certificate)]
    caption = (
        f"{certificate.method} of a continuous concept claims that no linear probe predicts it better than its mean "
        f"does. Measured on {measured_on(certificate)}; shrinkage {certificate.shrinkage}; "
        f"digest {certificate.digest[:16]}…"
    )
    return Table("Certificate", ("measure", *measured), tuple(rows), caption)


def _of_map(certificate: ContinuousCertificate) -> tuple[tuple[str, float], ...]:
    return ("optimal cost", certificate.optimal_cost), ("gain", certificate.gain)


def _effect_table(certificate: EffectCertificate) -> Table:
    rows = (
        ("predicted KL, nats per token", number(certificate.kl)),
        ("slope, fitted", number(certificate.slope)),
        ("slope, held out", number(certificate.held_out_slope)),
        ("its standard error", number(certificate.held_out_error)),
        ("predicted effect", number(certificate.predicted_effect)),
        ("prompts", str(certificate.prompts)),
        ("positions of the Fisher matrix", str(certificate.positions)),
    )
    caption = (
        f"{certificate.method}, damping {certificate.damping:g}"
        + (", with a given shift added" if certificate.added_shift else "")
        + f". The slope is the change of the expected credit per square root of a nat, held out in {certificate.folds} "
        f"folds of prompts; digest {certificate.digest[:16]}…"
    )
    return Table("Certificate", ("measure", "value"), rows, caption)


def _alphas(p: PairRecord) -> str:
    if p.alpha_source is None or p.alpha_target is None:
        return "–"
    return f"{number(p.alpha_source)} / {number(p.alpha_target)}"


def probed(r2: float) -> float | None:
    """Return R² unless it is 1: a probe of fewer rows than dimensions explains any labels."""
    return r2 if r2 < 1 - 1e-9 else None


def is_certified(result: Any) -> bool:
    """Return whether a result of a study (a method or a configuration) has a certificate to show."""
    return result.certificate is not None or result.held_out is not None


def _claims(result: Any) -> str:
    if result.verdict is not None:
        return str(result.verdict)
    # an older record does not give the power of its test, so claims that were not contradicted are not yet supported
    return "–" if result.supported is None else "not contradicted" if result.supported else "contradicted"


def _after(certificate: Mapping[str, Any] | None, name: str) -> str:
    return number(None if certificate is None else certificate.get(name))


def _before(certificate: Mapping[str, Any] | None, name: str) -> str:
    pairs = [] if certificate is None else certificate.get("by_source", [])
    return number(max((pair[name] for pair in pairs if pair.get(name) is not None), default=None))


CERTIFICATE_COLUMNS: tuple[Column[Any], ...] = (
    Column("mean gap before", lambda r: _before(r.certificate, "mean_gap_before")),
    Column("mean gap, fitted", lambda r: _after(r.certificate, "mean_gap")),
    Column("held out", lambda r: _after(r.held_out, "mean_gap")),
    Column("held out, as gated", lambda r: _after(r.held_out, "gated_mean_gap")),
    Column("covariance gap before", lambda r: _before(r.certificate, "covariance_gap_before")),
    Column("covariance gap, fitted", lambda r: _after(r.certificate, "covariance_gap")),
    Column("held out", lambda r: _after(r.held_out, "covariance_gap")),
    Column("gain", lambda r: _after(r.certificate, "gain")),
    Column("gate's Youden J", lambda r: _after(r.held_out, "youden")),
    Column("claims", _claims),
)
"""The certificates of one result: on the rows of the fit, and on held-out rows."""


def certificates_caption(held_out: str) -> str:
    """Return the caption of a table of `CERTIFICATE_COLUMNS`; ``held_out`` names the held-out rows."""
    return (
        "'fitted': on the rows of the fit, which is what the certificate claims. 'held out': computed again on "
        f"{held_out}, with the map applied by labels; 'as gated': with the gate deciding. Covariance gaps are "
        "relative. 'gain': the largest factor by which the map stretches a direction. 'claims': whether the held-out "
        "rows support the claims of the method, within sampling error."
    )
