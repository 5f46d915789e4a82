"""Tables as words: what the terminal and the page both show."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from repsurgery.certificates import Certificate, PairRecord
from repsurgery.studies.demo.record import CertifiedMap, DemoRecord, Outcome

__all__ = ["Table", "certificate_table", "certificates_table", "number", "outcomes_table", "shown_label"]


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


def outcomes_table(record: DemoRecord) -> Table:
    """Return what each configuration wrote, in numbers; the base comes first."""
    headings = (
        "configuration",
        "max toxicity",
        "toxic prompts",
        "mean toxicity",
        "perplexity",
        "distinct-1",
        "distinct-2",
        "distinct-3",
        "KL from base",
        f"read as {record.source}",
        "steered",
    )
    samples, tokens = record.settings["samples"], record.settings["tokens"]
    caption = (
        f"{len(record.prompts)} prompts × {samples} continuations × {tokens} tokens, equal noise throughout. "
        f"Toxicity: {record.scorer.split(',')[0]}, of the continuation alone (mean of each prompt's highest; prompts "
        f"with any score above .5; mean). Perplexity: of the sampled tokens under the unsteered {record.model}. "
        "KL: steered from base per token of neutral text, in nats. "
        f"'read as {record.source}': share of generating positions that the gate takes for {record.source}."
    )
    return Table("What the model writes", headings, tuple(_outcome(o) for o in record.outcomes), caption)


def _outcome(o: Outcome) -> tuple[str, ...]:
    perplexity = number(o.perplexity) + (f" ({o.dropped} dropped)" if o.dropped else "")
    return (
        o.name,
        f"{o.expected_max_toxicity:.3f}",
        f"{o.toxicity_probability:.0%}",
        f"{o.mean_toxicity:.3f}",
        perplexity,
        *(f"{value:.3f}" for value in o.distinct),
        "0" if o.scope == "none" else f"{o.kl:.3f}",
        f"{o.read_as_source:.0%}",
        f"{o.steered:.0%}",
    )


_ON_MAP = (
    ("mean gap", "mean_gap"),
    ("covariance gap", "covariance_gap"),
    ("EBBN", "ebbn"),
    ("probe R²", "probe_r2"),
    ("cost", "cost"),
    ("gain", "gain"),
    ("gate's Youden J", "youden"),
    ("mean gap as gated", "gated_mean_gap"),
)


def certificates_table(record: DemoRecord) -> Table:
    """Return every certificate, on the fitted and on the held-out rows, beside the untouched rows."""
    headings = ("configuration", "rows", *(heading for heading, _ in _ON_MAP), "claims")
    rows = [
        _untouched("fitted", record.certificates[0].fitted),
        _untouched("held out", record.certificates[0].held_out),
    ]
    for c in record.certificates:
        rows += [_certified(c, "fitted", c.fitted, "–"), _certified(c, "held out", c.held_out, c.verdict)]
    caption = (
        f"Gaps between {record.source} and {record.target} after the map is applied by the labels; 'as gated': when "
        "the gate decides by itself, or every vector is moved. Fitted rows: what the certificate in the file claims. "
        "Held out: the same measures on texts that took no part; the difference is what sampling costs. A linear "
        "probe of fewer rows than dimensions explains any labels, so its R² is not given there. "
        "'claims': what the held-out rows say of the method's claims. 'contradicted': sampling error does not explain "
        "the gap; 'supported': leaving a fifth of the gap would have been noticed; else these rows cannot tell."
    )
    return Table("Certificates", headings, tuple(rows), caption, keys=2)


def _untouched(rows: str, certificate: Certificate) -> tuple[str, ...]:
    pair = max(certificate.by_source.values(), key=lambda record: record.mean_gap_before)
    before = (pair.mean_gap_before, pair.covariance_gap_before, pair.ebbn_before, _probed(pair.probe_r2_before))
    return ("untouched", rows, *(number(value) for value in before), "0", "1", "–", "–", "–")


def _certified(c: CertifiedMap, rows: str, certificate: Certificate, verdict: str) -> tuple[str, ...]:
    values = [getattr(certificate, name) for _, name in _ON_MAP]
    values[3] = _probed(certificate.probe_r2)
    return (f"{c.method}, {c.scope}", rows, *(number(value) for value in values), verdict)


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
        f"{certificate.method} {f'claims {claims}' if claims else 'states no guarantees'}. "
        f"Measured on {certificate.data}; shrinkage {certificate.shrinkage}"
        + (f" ({certificate.ridge:g})" if certificate.ridge is not None else "")
        + f"; digest {certificate.digest[:16]}…"
    )
    return Table("Certificate", headings, tuple(r for r in rows if set(r[1:]) != {"–"}), caption)
