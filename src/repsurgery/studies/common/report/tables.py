"""Tables as words: what the terminal and the page both show."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from repsurgery.certificates import Certificate, PairRecord

__all__ = ["Table", "certificate_table", "number", "shown_label"]


@dataclass(frozen=True, slots=True)
class Table:
    """Headings and rows of text; the first ``keys`` columns name the row, the others hold numbers."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    keys: int = 1


def number(value: float | None, digits: int = 3) -> str:
    """Return ``value`` in a few digits: "–" where there is none, and rounding noise as its power of ten."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "none" if math.isnan(value) else "∞"
    if value == 0:
        return "0"
    if abs(value) >= 10**digits:
        return f"{value:.0f}" if abs(value) < 1e6 else f"{value:.1e}"
    return f"{value:#.{digits}g}".rstrip(".") if abs(value) >= 1e-3 else f"{value:.0e}"


def _probed(r2: float) -> float | None:
    """Return R² unless it is 1, which says of rows fewer than dimensions only that they are few."""
    return r2 if r2 < 1 - 1e-9 else None


_CLAIMS = {"means": "equal means", "covariances": "equal covariances", "variances": "equal variances"}


def shown_label(label: object) -> str:
    """Return ``label`` as text, in quotation marks where nothing of it would be seen."""
    return str(label) if str(label).strip() else repr(str(label))


def certificate_table(certificate: Certificate) -> Table:
    """Return one certificate, measure by measure: before, after, and what the method claims."""
    headings = (
        "measure",
        *(
            f"{shown_label(label)} → {'erased' if p.target is None else shown_label(p.target)}"
            for label, p in certificate.by_source.items()
        ),
    )
    measures: tuple[tuple[str, Callable[[PairRecord], str]], ...] = (
        ("rows", lambda p: f"{p.rows_source} / {p.rows_target}"),
        ("mean gap before", lambda p: number(p.mean_gap_before)),
        ("mean gap", lambda p: number(p.mean_gap)),
        ("covariance gap before", lambda p: number(p.covariance_gap_before)),
        ("covariance gap", lambda p: number(p.covariance_gap)),
        ("EBBN before", lambda p: number(p.ebbn_before)),
        ("EBBN", lambda p: number(p.ebbn)),
        ("probe R² before", lambda p: number(_probed(p.probe_r2_before))),
        ("probe R²", lambda p: number(_probed(p.probe_r2))),
        ("cost", lambda p: number(p.cost)),
        ("optimal cost", lambda p: number(p.optimal_cost)),
        ("gain", lambda p: number(p.gain)),
        ("feasible", lambda p: "yes" if p.feasible else "no"),
        ("moved by shrinkage", lambda p: number(p.shrinkage_moved)),
        ("gate's Youden J", lambda p: number(p.youden)),
        ("mean gap as gated", lambda p: number(p.gated_mean_gap)),
    )
    rows = tuple((name, *(show(p) for p in certificate.by_source.values())) for name, show in measures)
    claims = ", ".join(_CLAIMS.get(claim, f"equal {claim}") for claim in certificate.claims)
    caption = (
        f"{certificate.method} claims {claims}. Measured on {certificate.data}; shrinkage {certificate.shrinkage}"
        + (f" ({certificate.ridge:g})" if certificate.ridge is not None else "")
        + f"; digest {certificate.digest[:16]}…"
    )
    return Table("Certificate", headings, tuple(r for r in rows if set(r[1:]) != {"–"}), caption)
