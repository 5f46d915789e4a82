"""Tables of a toxicity study: what each configuration writes, at what cost, beside the published figures."""

from collections.abc import Mapping, Sequence
from typing import Any

from repsurgery.studies.common.report.certificates import CERTIFICATE_COLUMNS, certificates_caption, is_certified
from repsurgery.studies.common.report.numbers import fraction, word
from repsurgery.studies.common.report.significance import without_tests
from repsurgery.studies.common.report.tables import Column, Measured, Table, table_of
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord, is_published_concept
from repsurgery.studies.toxicity.report.ablation import ablation_tables
from repsurgery.studies.toxicity.report.against import against_tables
from repsurgery.studies.toxicity.report.claims import claims_tables
from repsurgery.studies.toxicity.report.columns import NAME, leading, measures_of
from repsurgery.studies.toxicity.report.damage import damage_caption, names_of
from repsurgery.studies.toxicity.report.needs import needs_table
from repsurgery.studies.toxicity.report.published import beside_table
from repsurgery.studies.toxicity.report.rivals import has_rivals
from repsurgery.studies.toxicity.report.side_by_side import side_by_side
from repsurgery.studies.toxicity.report.significance import adjusted_toxicity, toxicity_with_tests

__all__ = ["toxicity_certificates", "toxicity_tables"]

_INTERVALS = (
    "Brackets contain 95% intervals over prompts: exact ones for probabilities, BCa for the other measures. Changes "
    "are paired with the base. * marks a significant change: the test swaps the two values of each prompt at random, "
    "and Holm's p-value over the configurations of the study is at most .05."
)
_OLDER = (
    " This record contains the highest score of each prompt, from which the intervals and tests of expected max "
    "toxicity and toxicity probability were computed; for other measures it contains percentile intervals, whose width "
    "gives the p-value."
)
_COUNTS = (("count", "prompts"), ("samples", "continuations"), ("tokens", "tokens"))


def toxicity_tables(record: ToxicityRecord) -> list[Table]:
    """Return the tables of the results, the main one first; what was not measured has no table.

    Parameters
    ----------
    record : ToxicityRecord

    Returns
    -------
    list of Table
        With rivals, first: all methods beside the published ones, who beats whom, what each needs, paired tests. Then:
        toxicity by the leading scorer; fluency, diversity and collateral damage; several fluency models; published
        figures and claims; further scorers; ablations; certificates.
    """
    older = _OLDER if without_tests(record.configurations) else ""
    tested = toxicity_with_tests(record)
    record = adjusted_toxicity(tested)
    compares, rivals = is_published_concept(record.spec), has_rivals(record)
    tables = [
        *(_rival_tables(tested) if rivals else []),
        _toxicity_table(record),
        _cost_table(record, older),
        _judges_table(record),
        *([beside_table(record)] if compares and not rivals else []),
        *(claims_tables(tested) if compares else []),
        *(_scorer_table(record, scorer) for scorer in list(record.scorers)[1:]),
        _mean_table(record, older),
        _diversity_table(record, older),
        *ablation_tables(record),
        toxicity_certificates(record),
    ]
    return [table for table in tables if table is not None]


def _rival_tables(record: ToxicityRecord) -> list[Table | None]:
    tests = against_tables(record)
    return [side_by_side(record), *tests[:1], needs_table(record), *tests[1:]]


def _results(record: ToxicityRecord, title: str, columns: Sequence[Column[Any]], caption: str) -> Table | None:
    """Return a table of all configurations, in which those that damaged the model are marked."""
    return table_of(title, names_of(record), columns, record.configurations, caption + damage_caption(record))


def _columns(scorer: str, table: str) -> list[Column[Measured]]:
    return [column for measure in measures_of(scorer, table) for column in measure.columns()]


def _toxicity_table(record: ToxicityRecord) -> Table | None:
    first, further = leading(record), list(record.scorers)[1:]
    others = [
        measure.value(heading=f"{measure.heading}, {scorer}")
        for scorer in further
        for measure in measures_of(scorer, "toxicity")
    ]
    scorers = "; ".join(_scorer(key, facts) for key, facts in record.scorers.items())
    default = f" Columns that do not name a scorer are by {first}." if others else ""
    caption = (
        f"{_prompts(record)}Toxicity is scored on the continuation by {scorers}.{default} Expected max toxicity: the "
        "mean over prompts of the highest score among the continuations of a prompt. Toxicity probability: the share "
        f"of prompts with any score above .5. {_INTERVALS}"
    )
    columns = [*_columns(first, "toxicity"), *others]
    return _results(record, "Toxicity", columns, caption)


def _prompts(record: ToxicityRecord) -> str:
    facts = record.prompts
    parts = [f"{word(facts[name])} {noun}" for name, noun in _COUNTS if facts.get(name) is not None]
    return f"{facts.get('name', 'Prompts')}: {' × '.join(parts)}. " if parts else ""


def _scorer(key: str, facts: Mapping[str, Any]) -> str:
    name = " ".join(word(facts[part]) for part in ("name", "version") if facts.get(part) is not None)
    auc = "" if facts.get("auc") is None else f", AUC {fraction(facts['auc'])} against archived Perspective scores"
    return f"{key} ({name or 'unnamed'}{auc})"


def _cost_table(record: ToxicityRecord, older: str) -> Table | None:
    columns = [
        column
        for measure in measures_of(leading(record), "cost", "diversity")
        for column in (measure.columns() if measure.table == "cost" else [measure.value(interval=False)])
    ]
    caption = (
        f"Perplexity: of the continuations given their prompts, under {record.fluency.get('name', 'the fluency model')}"
        ", mean over generations below 10,000. Dist-n: unique n-grams divided by words, per prompt. WikiText: "
        "perplexity, under the steered model, of documents that are unrelated to the concept. KL in nats per "
        "token: KL(steered ‖ base) on neutral text, and KL(base ‖ steered) on the base's own continuations. Steered: "
        "share of generated positions that were moved. "
        f"{_INTERVALS}{older}"
    )
    return _results(record, "Fluency, diversity, collateral damage", columns, caption)


def _judges_table(record: ToxicityRecord) -> Table | None:
    """Return the fluency by each model that judged it; None if there is only one."""
    further = record.fluency.get("further", ())
    if not further:
        return None
    names = {"": record.fluency["name"], **{judge: judge for judge in further}}
    columns = [
        column
        for judge, name in names.items()
        for measure in measures_of(leading(record), "fluency", judge=judge)
        for column in (measure.value(heading=f"{measure.heading}, {name}"), measure.difference())
    ]
    caption = (
        "The same continuations given their prompts, read by several models without steering. Perplexities compare "
        "within one model only, because models divide texts into different tokens. Bits per character: of the "
        f"continuations whose perplexity is below 10,000. {_INTERVALS}"
    )
    return _results(record, "Fluency by several models", columns, caption)


def _scorer_table(record: ToxicityRecord, scorer: str) -> Table | None:
    caption = f"The same continuations, scored by {_scorer(scorer, record.scorers[scorer])}. {_INTERVALS}"
    columns = _columns(scorer, "toxicity")
    return _results(record, f"Toxicity by {scorer}", columns, caption)


def _mean_table(record: ToxicityRecord, older: str) -> Table | None:
    columns = [
        column
        for scorer in record.scorers
        for measure in measures_of(scorer, "mean")
        for column in (measure.value(heading=f"{measure.heading}, {scorer}"), measure.difference())
    ]
    caption = f"Mean over all continuations. {_INTERVALS}{older}"
    return _results(record, "Mean toxicity", columns, caption)


def _diversity_table(record: ToxicityRecord, older: str) -> Table | None:
    columns = _columns(leading(record), "diversity")
    return _results(record, "Diversity", columns, _INTERVALS + older)


def toxicity_certificates(record: ToxicityRecord) -> Table | None:
    """Return the certificates of the configurations on fitted and held-out texts; None if there are none."""
    columns: list[Column[Configured]] = [Column("rows: source / target", _rows), *CERTIFICATE_COLUMNS]
    certified = filter(is_certified, record.configurations)
    return table_of("Certificates", NAME, columns, certified, certificates_caption("held-out texts"))


def _rows(c: Configured) -> str:
    pairs = (c.certificate or {}).get("by_source", [])
    known = [pair for pair in pairs if {"rows_source", "rows_target"} <= pair.keys()]
    return "; ".join(f"{pair['rows_source']:,} / {pair['rows_target']:,}" for pair in known) or "–"
