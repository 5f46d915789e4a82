"""A toxicity record in two short tables: certificates, and what the model writes."""

from collections.abc import Mapping
from typing import Any

from repsurgery.studies.common.report.certificates import probed
from repsurgery.studies.common.report.numbers import number
from repsurgery.studies.common.report.tables import Column, Measure, Table, table_of
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.columns import leading, measures_of
from repsurgery.studies.toxicity.report.damage import damage_caption, names_of

__all__ = ["certificates_table", "outcomes_table"]

_CERTIFIED = {
    "mean gap": "mean_gap",
    "covariance gap": "covariance_gap",
    "EBBN": "ebbn",
    "probe R²": "probe_r2",
    "cost": "cost",
    "gain": "gain",
    "gate's Youden J": "youden",
    "mean gap as gated": "gated_mean_gap",
}


def certificates_table(record: ToxicityRecord) -> Table:
    """Return every certificate, on the fitted and on the held-out rows, after the untouched rows."""
    certified = [c for c in record.configurations if c.certificate is not None]
    rows = [*_untouched(certified[0])] if certified else []
    for c in certified:
        rows += [
            (c.name, where, *(_cell(certificate, name) for name in _CERTIFIED.values()), verdict)
            for where, certificate, verdict in _issued(c)
        ]
    source, target = record.spec.get("source", "source"), record.spec.get("target", "target")
    caption = (
        f"Gaps between {source} and {target} after the map is applied by labels; 'as gated': the gate decides, or "
        "every vector is moved. Fitted rows show what the certificate in the file claims. Held-out rows show the same "
        "measures on texts that were not used for fitting; the difference is the sampling error. A linear probe on "
        "fewer rows than dimensions explains any labels, so its R² is not shown. 'claims' is the verdict of the "
        "held-out rows on the method's claims. 'contradicted': sampling error does not explain the gap. 'supported': "
        "these rows would have revealed a fifth of the gap. 'cannot tell': they are too few for either."
    )
    return Table("Certificates", ("configuration", "rows", *_CERTIFIED, "claims"), tuple(rows), caption, keys=2)


def _issued(c: Configured) -> list[tuple[str, Mapping[str, Any], str]]:
    issued = [("fitted", c.certificate, "–"), ("held out", c.held_out, c.verdict or "–")]
    return [(where, certificate, verdict) for where, certificate, verdict in issued if certificate is not None]


def _untouched(c: Configured) -> list[tuple[str, ...]]:
    rows = []
    for where, certificate, _ in _issued(c):
        pair = max(certificate["by_source"], key=lambda pair: pair["mean_gap_before"])
        before = {name: pair.get(f"{name}_before") for name in _CERTIFIED.values()} | {"cost": 0.0, "gain": 1.0}
        rows.append(("untouched", where, *(_cell(before, name) for name in _CERTIFIED.values()), "–"))
    return rows


def _cell(certificate: Mapping[str, Any], name: str) -> str:
    value = certificate.get(name)
    return number(probed(value) if name == "probe_r2" and value is not None else value)


def outcomes_table(record: ToxicityRecord) -> Table:
    """Return the measures of each configuration without intervals, by the first scorer; the base comes first."""
    measures = measures_of(leading(record), "toxicity", "mean", "cost", "diversity")
    columns = [_perplexity_column(m) if m.key == "perplexity" else m.value(interval=False) for m in measures]
    caption = (
        f"{record.prompts.get('count')} prompts × {record.prompts.get('samples')} continuations × "
        f"{record.prompts.get('tokens')} tokens. Toxicity of the continuation by {leading(record)}: mean over prompts "
        "of the highest score; share of prompts with any score above .5; mean over continuations. Perplexity: of the "
        f"continuations given their prompts, under {record.fluency.get('name')} without steering. Dist-n: unique "
        "n-grams divided by words. KL in nats per token: KL(steered ‖ base) on neutral text, and KL(base ‖ steered) on "
        "the base's own continuations. Steered: share of generated positions that were moved. '–': the measure does "
        f"not apply.{damage_caption(record)}"
    )
    title = "What the model writes"
    return table_of(title, names_of(record), columns, record.configurations, caption) or Table(
        title, ("configuration",), ()
    )


def _perplexity_column(measure: Measure) -> Column[Configured]:
    def cell(c: Configured) -> str:
        dropped = c.facts.get("perplexities_dropped")
        return measure.value(interval=False).cell(c) + (f" ({dropped} dropped)" if dropped else "")

    return Column(measure.heading, cell, measure)
