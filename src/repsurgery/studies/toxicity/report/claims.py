"""The paper's claims on toxicity and damage with their verdicts, in short and pair by pair."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.numbers import estimate, fraction, quantity
from repsurgery.studies.common.report.published import PublishedToxicity
from repsurgery.studies.common.report.tables import Table
from repsurgery.studies.significance import adjusted
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.rows import EMT, PROBABILITY, WORD_PERPLEXITY
from repsurgery.studies.toxicity.report.verdicts import (
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

__all__ = ["claims_tables"]

_TITLES = {EMT: "expected max toxicity", PROBABILITY: "toxicity probability"}
_ORDER = ("holds", "undecided", "does not hold")


@dataclass(frozen=True, slots=True)
class _Judged:
    """A claim on one measure, the two configurations it compares, and their difference by scorer."""

    claim: Claim
    lower: Configured
    higher: Configured
    found: Mapping[str, Estimate | None]


def claims_tables(record: ToxicityRecord) -> list[Table]:
    """Return the verdicts on every claim; none where there is nothing to compare."""
    judged = {measure: _judged(record, measure) for measure in (EMT, PROBABILITY)}
    tables = [
        _short_table(record, judged),
        *(_claims_table(record, measure, rows) for measure, rows in judged.items()),
        _damage_table(record),
    ]
    return [table for table in tables if table is not None]


def _judged(record: ToxicityRecord, measure: str) -> list[_Judged]:
    pairs = [(claim, *pair) for claim in TOXICITY for pair in pairs_of(record, claim)]
    found = {s: adjusted([difference(low, high, s, measure) for _, low, high in pairs]) for s in record.scorers}
    return [_Judged(*pair, {s: found[s][i] for s in record.scorers}) for i, pair in enumerate(pairs)]


def _short_table(record: ToxicityRecord, judged: Mapping[str, list[_Judged]]) -> Table | None:
    cells: dict[str, dict[str, list[str]]] = {}
    for measure, rows in judged.items():
        for row in rows:
            for scorer, found in row.found.items():
                said = cells.setdefault(f"less toxic: {row.claim.words}", {})
                said.setdefault(f"{_TITLES[measure]}, {scorer}", []).append(judge_difference(found))
    for claim in DAMAGE:
        for lower, higher in pairs_of(record, claim):
            said = cells.setdefault(f"less damage: {claim.words}", {})
            said.setdefault("WikiText per word", []).append(judge_damage(lower, higher))
    headings = list(dict.fromkeys(heading for row in cells.values() for heading in row))
    tallies = [(words, *(_tally(row.get(heading, [])) for heading in headings)) for words, row in cells.items()]
    told = tuple(row for row in tallies if set(row[1:]) != {"–"})
    if not told:
        return None
    caption = (
        "Verdicts on each claim; where it orders several pairs of configurations, how many pairs say what. The pairs, "
        "and the rule, stand in the tables that follow."
    )
    return Table("The paper's claims", ("claim", *headings), told, caption, keys=len(headings) + 1)


def _tally(verdicts: Sequence[str]) -> str:
    counts = Counter(verdict for verdict in verdicts if verdict != "–")
    if len(counts) == 1 and len(verdicts) == 1:
        return next(iter(counts))
    return ", ".join(f"{verdict} {counts[verdict]}" for verdict in _ORDER if counts[verdict]) or "–"


def _claims_table(record: ToxicityRecord, measure: str, judged: Sequence[_Judged]) -> Table | None:
    def figure(row: PublishedToxicity) -> str:
        return fraction(row.expected_max_toxicity if measure == EMT else row.toxicity_probability, digits=2)

    rows = [
        (*_lead(row.claim, row.lower, row.higher, figure), *(_verdict(row.found[s]) for s in record.scorers))
        for row in judged
    ]
    held = tuple(row for row in rows if set(row[3:]) != {"–"})
    if not held:
        return None
    headings = ("claim", "ours", "paper", *(f"by {scorer}" for scorer in record.scorers))
    caption = f"Each claim orders two configurations; verdicts give the first minus the second. {_rule(measure)}"
    return Table(f"The paper's claims: {_TITLES[measure]}", headings, held, caption, keys=len(headings))


def _verdict(found: Estimate | None) -> str:
    return "–" if found is None else f"{judge_difference(found)}: {estimate(found, signed=True)}"


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
