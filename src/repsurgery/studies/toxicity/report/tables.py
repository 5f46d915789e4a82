"""Tables of a toxicity study: what each configuration writes, at what cost, beside the published figures."""

from collections.abc import Mapping
from typing import Any

from repsurgery.studies.common.report.certified import certificate_columns, is_certified
from repsurgery.studies.common.report.facts import word
from repsurgery.studies.common.report.numbers import fraction
from repsurgery.studies.common.report.tables import Table
from repsurgery.studies.significance import adjusted_toxicity, toxicity_with_tests, without_tests
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord, is_demo
from repsurgery.studies.toxicity.report.ablation import ablation_tables
from repsurgery.studies.toxicity.report.claims import claims_tables
from repsurgery.studies.toxicity.report.published import beside_table
from repsurgery.studies.toxicity.report.rows import (
    BYTE_PERPLEXITY,
    EMT,
    PROBABILITY,
    WORD_PERPLEXITY,
    Column,
    by_configuration,
    leading,
    plain,
    quantity_change,
    quantity_of,
    share,
    share_change,
    steered_columns,
)

__all__ = ["toxicity_tables"]

_INTERVALS = (
    "Brackets hold 95% intervals over prompts: exact ones of probabilities, BCa of the rest; changes from the base are "
    "paired. * marks a change that its paired test sees: each prompt's two values are swapped at random, and Holm's "
    "p-value over the study's configurations is at most .05."
)
_OLDER = (
    " This record keeps the highest score of each prompt, from which the intervals and tests of expected max toxicity "
    "and toxicity probability were computed; of other measures it keeps percentile intervals, whose width gives the "
    "p-value."
)


def toxicity_tables(record: ToxicityRecord) -> list[Table]:
    """Return the tables of the results, the main one first; what was not measured has none.

    Parameters
    ----------
    record : ToxicityRecord

    Returns
    -------
    list of Table
        Toxicity by the leading scorer; fluency, diversity and collateral damage; published figures and claims; further
        scorers; ablations; certificates.
    """
    older = _OLDER if without_tests(record.configurations) else ""
    plain = toxicity_with_tests(record)
    record = adjusted_toxicity(plain)
    tables = [
        _toxicity_table(record),
        _cost_table(record, older),
        # the demonstration steers another concept, so the published figures do not apply to it
        *([] if is_demo(record.spec) else [beside_table(record), *claims_tables(plain)]),
        *(_scorer_table(record, scorer) for scorer in list(record.scorers)[1:]),
        _mean_table(record, older),
        _diversity_table(record, older),
        *ablation_tables(record),
        _certificate_table(record),
    ]
    return [table for table in tables if table is not None]


def _toxicity_table(record: ToxicityRecord) -> Table | None:
    others: list[Column] = []
    for scorer in list(record.scorers)[1:]:
        others.append((f"expected max toxicity, {scorer}", share(f"{scorer}.{EMT}")))
        others.append((f"toxicity probability, {scorer}", share(f"{scorer}.{PROBABILITY}")))
    first = leading(record)
    by = "; ".join(_scorer(key, facts) for key, facts in record.scorers.items())
    lead = f" Columns that name no scorer are by {first}." if others else ""
    caption = (
        f"{_prompts(record)}Toxicity is scored on the continuation by {by}.{lead} Expected max toxicity: the mean over "
        "prompts of the highest score among a prompt's continuations. Toxicity probability: the share of prompts with "
        f"any score above .5. {_INTERVALS}"
    )
    return by_configuration("Toxicity", [*_scored(first), *others], record.configurations, caption=caption)


def _scored(scorer: str) -> tuple[Column, ...]:
    return (
        ("expected max toxicity", share(f"{scorer}.{EMT}")),
        ("change from base", share_change(f"{scorer}.{EMT}")),
        ("toxicity probability", share(f"{scorer}.{PROBABILITY}")),
        ("change from base", share_change(f"{scorer}.{PROBABILITY}")),
    )


def _prompts(record: ToxicityRecord) -> str:
    held = record.prompts
    parts = [f"{word(held[name])} {words}" for name, words in _COUNTS if held.get(name) is not None]
    return f"{held.get('name', 'Prompts')}: {' × '.join(parts)}. " if parts else ""


_COUNTS = (("count", "prompts"), ("samples", "continuations"), ("tokens", "tokens"))


def _scorer(key: str, facts: Mapping[str, Any]) -> str:
    name = " ".join(word(facts[part]) for part in ("name", "version") if facts.get(part) is not None)
    agreement = (
        "" if facts.get("auc") is None else f", AUC {fraction(facts['auc'])} against archived Perspective scores"
    )
    return f"{key} ({name or 'unnamed'}{agreement})"


def _cost_table(record: ToxicityRecord, older: str) -> Table | None:
    columns = (
        ("perplexity", quantity_of("perplexity")),
        ("change from base", quantity_change("perplexity")),
        *((f"dist-{n}", plain(f"distinct.{n}")) for n in (1, 2, 3)),
        ("WikiText per word", quantity_of(WORD_PERPLEXITY)),
        ("per byte", quantity_of(BYTE_PERPLEXITY)),
        *steered_columns(),
    )
    reader = record.fluency.get("name", "the fluency model")
    caption = (
        f"Perplexity: of the continuations given their prompts, under {reader}, mean over generations below 10,000. "
        "Dist-n: unique n-grams over words, per prompt. WikiText: perplexity of documents that have nothing to do "
        "with the concept, under the steered model. KL: from the base, on neutral text, in nats per token. Steered: "
        f"share of generated positions that were moved. {_INTERVALS}{older}"
    )
    return by_configuration("Fluency, diversity, collateral damage", columns, record.configurations, caption=caption)


def _scorer_table(record: ToxicityRecord, scorer: str) -> Table | None:
    caption = f"The same continuations, scored by {_scorer(scorer, record.scorers[scorer])}. {_INTERVALS}"
    return by_configuration(f"Toxicity by {scorer}", _scored(scorer), record.configurations, caption=caption)


def _mean_table(record: ToxicityRecord, older: str) -> Table | None:
    columns: list[Column] = []
    for scorer in record.scorers:
        columns.append((f"mean toxicity, {scorer}", share(f"{scorer}.mean_toxicity")))
        columns.append(("change from base", share_change(f"{scorer}.mean_toxicity")))
    caption = f"Mean over all continuations. {_INTERVALS}{older}"
    return by_configuration("Mean toxicity", columns, record.configurations, caption=caption)


def _diversity_table(record: ToxicityRecord, older: str) -> Table | None:
    columns: list[Column] = []
    for n in (1, 2, 3):
        columns.append((f"dist-{n}", share(f"distinct.{n}")))
        columns.append(("change from base", share_change(f"distinct.{n}")))
    return by_configuration("Diversity", columns, record.configurations, caption=_INTERVALS + older)


def _certificate_table(record: ToxicityRecord) -> Table | None:
    columns = (("rows: source / target", _rows), *certificate_columns())
    caption = (
        "Fitted: on the rows of the fit, what the certificate claims. Held out: re-issued on texts that took no part, "
        "the map applied by labels; 'as gated': when the gate decides. Covariance gaps are relative. 'claims': whether "
        "the held-out rows support what the method claims, within sampling error."
    )
    certified = [c for c in record.configurations if is_certified(c)]
    return by_configuration("Certificates", columns, certified, caption=caption)


def _rows(c: Configured) -> str:
    pairs = (c.certificate or {}).get("by_source", [])
    known = [pair for pair in pairs if {"rows_source", "rows_target"} <= pair.keys()]
    return "; ".join(f"{pair['rows_source']:,} / {pair['rows_target']:,}" for pair in known) or "–"
