"""The published toxicity figures beside ours, and the paper's claims with their verdicts."""

from collections.abc import Callable, Mapping
from typing import Any

from repsurgery.report.numbers import estimate, fraction, quantity
from repsurgery.report.published import PublishedToxicity, published
from repsurgery.report.tables import Table
from repsurgery.report.toxicity_rows import EMT, PROBABILITY, WORD_PERPLEXITY, leading, plain, plain_quantity
from repsurgery.report.toxicity_verdicts import (
    DAMAGE,
    RULE,
    TOXICITY,
    Claim,
    difference,
    judge_damage,
    judge_difference,
    pairs_of,
    published_row,
)
from repsurgery.results import Configured, ToxicityRecord

__all__ = ["counterpart", "published_tables"]

_PUBLISHED_CHOICES: Mapping[str, Any] = {
    "fit": "last",
    "gate": "nearest-mean",
    "shrinkage": "none",
    "strength": 1,
    "site": "final",
}
_TITLES = {EMT: "expected max toxicity", PROBABILITY: "toxicity probability"}


def published_tables(record: ToxicityRecord) -> list[Table]:
    """Return the published rows beside ours, then the verdicts on each measure."""
    tables = [
        _beside_table(record),
        _claims_table(record, EMT),
        _claims_table(record, PROBABILITY),
        _damage_table(record),
    ]
    return [table for table in tables if table is not None]


def counterpart(record: ToxicityRecord, method: str, scope: str) -> Configured | None:
    """Return the configuration of a method and scope whose other choices are nearest to the published ones."""
    held = [c for c in record.configurations if c.choices.get("method") == method and c.choices.get("scope") == scope]
    if method == "base":
        return record.configured("base")
    return max(held, key=_agreement, default=None)


def _agreement(c: Configured) -> int:
    return sum(c.choices.get(name) == value for name, value in _PUBLISHED_CHOICES.items())


def _beside_table(record: ToxicityRecord) -> Table | None:
    rows = []
    for row in published().toxicity:
        rows.append(("published", row.name, *_printed(row)))
        ours = None if row.method is None or row.scope is None else counterpart(record, row.method, row.scope)
        if ours is not None:
            rows.append(("ours", ours.name, *_measured(record, ours)))
    headings = (
        "whose",
        "configuration",
        "expected max toxicity",
        "toxicity probability",
        "perplexity",
        *(f"dist-{n}" for n in (1, 2, 3)),
        "WikiText per word",
    )
    caption = (
        f"Published: {published().sources['toxicity']} {published().notes['toxicity']} Ours: another model, other "
        f"scorers, toxicity by {leading(record) or 'no scorer'}; below each published method stands our configuration "
        "whose fit, gate, shrinkage, strength and site are nearest to the published ones."
    )
    return Table("Published beside ours", headings, tuple(rows), caption, keys=2)


def _printed(row: PublishedToxicity) -> tuple[str, ...]:
    shares = (row.expected_max_toxicity, row.toxicity_probability)
    return (
        *(fraction(value, digits=2) for value in shares),
        f"{row.perplexity:g}",
        *(fraction(value, digits=2) for value in row.distinct),
        "–" if row.word_perplexity is None else f"{row.word_perplexity:g}",
    )


def _measured(record: ToxicityRecord, c: Configured) -> tuple[str, ...]:
    first = leading(record)
    return (
        plain(f"{first}.{EMT}")(c),
        plain(f"{first}.{PROBABILITY}")(c),
        plain_quantity("perplexity")(c),
        *(plain(f"distinct.{n}")(c) for n in (1, 2, 3)),
        plain_quantity(WORD_PERPLEXITY)(c),
    )


def _claims_table(record: ToxicityRecord, measure: str) -> Table | None:
    def cell(lower: Configured, higher: Configured, scorer: str) -> str:
        found = difference(lower, higher, scorer, measure)
        return "–" if found is None else f"{judge_difference(found)}: {estimate(found, signed=True)}"

    def figure(row: PublishedToxicity) -> str:
        return fraction(row.expected_max_toxicity if measure == EMT else row.toxicity_probability, digits=2)

    rows = [
        (*_lead(claim, lower, higher, figure), *(cell(lower, higher, scorer) for scorer in record.scorers))
        for claim in TOXICITY
        for lower, higher in pairs_of(record, claim)
    ]
    held = tuple(row for row in rows if set(row[3:]) != {"–"})
    if not held:
        return None
    headings = ("claim", "ours", "paper", *(f"by {scorer}" for scorer in record.scorers))
    caption = f"Each claim orders two configurations; verdicts give the first minus the second. {_rule(measure)}"
    return Table(f"The paper's claims: {_TITLES[measure]}", headings, held, caption, keys=len(headings))


def _rule(measure: str) -> str:
    return RULE if measure == EMT else "They are reached as those on the expected max toxicity."


def _damage_table(record: ToxicityRecord) -> Table | None:
    rows = []
    for claim in DAMAGE:
        for lower, higher in pairs_of(record, claim):
            verdict = judge_damage(lower, higher)
            if verdict != "–":
                lead = _lead(claim, lower, higher, lambda row: f"{row.word_perplexity:g}")
                figures = (quantity(c.measures[WORD_PERPLEXITY]) for c in (lower, higher))
                rows.append((*lead, " < ".join(figures) if verdict == "holds" else " against ".join(figures), verdict))
    if not rows:
        return None
    headings = ("claim", "ours", "paper", "word perplexity", "verdict")
    caption = (
        "Word perplexity of WikiText on the same documents. It has no interval: the four digits shown decide, and "
        "equal ones leave the claim undecided. Pairs as above."
    )
    return Table("The paper's claims: collateral damage", headings, tuple(rows), caption, keys=len(headings))


def _lead(
    claim: Claim, lower: Configured, higher: Configured, figure: Callable[[PublishedToxicity], str]
) -> tuple[str, str, str]:
    printed = [published_row(*place) for place in (claim.lower, claim.higher)]
    told = " < ".join(figure(row) for row in printed if row is not None)
    return claim.words, f"{lower.name} < {higher.name}", told
