"""Tables of the demonstration: outcomes and certificates of every configuration."""

from repsurgery.certificates import Certificate
from repsurgery.studies.common.report.certificates import probed
from repsurgery.studies.common.report.numbers import number
from repsurgery.studies.common.report.tables import Table
from repsurgery.studies.demo.record import CertifiedMap, DemoRecord, Outcome

__all__ = ["certificates_table", "outcomes_table"]


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
    before = (pair.mean_gap_before, pair.covariance_gap_before, pair.ebbn_before, probed(pair.probe_r2_before))
    return ("untouched", rows, *(number(value) for value in before), "0", "1", "–", "–", "–")


def _certified(c: CertifiedMap, rows: str, certificate: Certificate, verdict: str) -> tuple[str, ...]:
    values = [getattr(certificate, name) for _, name in _ON_MAP]
    values[3] = probed(certificate.probe_r2)
    return (f"{c.method}, {c.scope}", rows, *(number(value) for value in values), verdict)
