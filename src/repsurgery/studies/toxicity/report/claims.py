"""The verdicts on the paper's claims about toxicity and damage, in short and pair by pair."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.numbers import estimate
from repsurgery.studies.common.report.significance import adjusted
from repsurgery.studies.common.report.tables import Measure, Table
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.columns import EMT, PROBABILITY, WORD_PERPLEXITY, measure_named
from repsurgery.studies.toxicity.report.damage import is_damaged
from repsurgery.studies.toxicity.report.published import printed
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

_ORDER = ("holds", "undecided", "does not hold", "damaged")


@dataclass(frozen=True, slots=True)
class _Judged:
    """A claim on one measure, the two configurations it compares, whether one is damaged, and their differences."""

    claim: Claim
    lower: Configured
    higher: Configured
    damaged: bool
    differences: Mapping[str, Estimate | None]

    def verdict(self, scorer: str) -> str:
        """Return the verdict by one scorer; there is none on a damaged model."""
        found = judge_difference(self.differences[scorer])
        return "damaged" if self.damaged and found != "–" else found


def claims_tables(record: ToxicityRecord) -> list[Table]:
    """Return the verdicts on every claim; no table without anything to compare."""
    judged = {name: _judged(record, name) for name in (EMT, PROBABILITY)}
    tables = [
        _short_table(record, judged),
        *(_claims_table(record, name, rows) for name, rows in judged.items()),
        _damage_table(record),
    ]
    return [table for table in tables if table is not None]


def _judged(record: ToxicityRecord, name: str) -> list[_Judged]:
    pairs = [(claim, *pair, _is_damaged(record, *pair)) for claim in TOXICITY for pair in pairs_of(record, claim)]
    # a pair without a verdict is not a test, and the others need not be surer because of it
    by_scorer = {
        s: adjusted([None if damaged else difference(low, high, s, name) for _, low, high, damaged in pairs])
        for s in record.scorers
    }
    plain = [
        {s: difference(low, high, s, name) if damaged else by_scorer[s][i] for s in record.scorers}
        for i, (_, low, high, damaged) in enumerate(pairs)
    ]
    return [_Judged(*pair, found) for pair, found in zip(pairs, plain, strict=True)]


def _is_damaged(record: ToxicityRecord, *pair: Configured) -> bool:
    return any(is_damaged(record, c) for c in pair)


def _damage_verdict(record: ToxicityRecord, lower: Configured, higher: Configured) -> str:
    found = judge_damage(lower, higher, int(record.wikitext.get("documents", 0)))
    return "damaged" if _is_damaged(record, lower, higher) and found != "–" else found


def _short_table(record: ToxicityRecord, judged: Mapping[str, list[_Judged]]) -> Table | None:
    verdicts: dict[str, dict[str, list[str]]] = {}
    for name, rows in judged.items():
        for row in rows:
            for scorer in row.differences:
                by_column = verdicts.setdefault(f"less toxic: {row.claim.words}", {})
                heading = f"{measure_named(name, scorer).heading}, {scorer}"
                by_column.setdefault(heading, []).append(row.verdict(scorer))
    for claim in DAMAGE:
        for lower, higher in pairs_of(record, claim):
            by_column = verdicts.setdefault(f"less damage: {claim.words}", {})
            by_column.setdefault("WikiText per word", []).append(_damage_verdict(record, lower, higher))
    headings = list(dict.fromkeys(heading for row in verdicts.values() for heading in row))
    tallies = ((words, *(_tally(row.get(heading, [])) for heading in headings)) for words, row in verdicts.items())
    rows_shown = tuple(row for row in tallies if set(row[1:]) != {"–"})
    if not rows_shown:
        return None
    caption = (
        "The verdict on each claim; if a claim orders several pairs of configurations, the number of pairs with each "
        "verdict. The tables that follow show the pairs and state the rule."
    )
    return Table("The paper's claims", ("claim", *headings), rows_shown, caption, keys=len(headings) + 1)


def _tally(verdicts: Sequence[str]) -> str:
    counts = Counter(verdict for verdict in verdicts if verdict != "–")
    if len(counts) == 1 and len(verdicts) == 1:
        return next(iter(counts))
    return ", ".join(f"{verdict} {counts[verdict]}" for verdict in _ORDER if counts[verdict]) or "–"


def _claims_table(record: ToxicityRecord, name: str, judged: Sequence[_Judged]) -> Table | None:
    measure = measure_named(name, "")
    rows = (
        (*_pair(row.claim, row.lower, row.higher, measure), *(_verdict(row, s) for s in record.scorers))
        for row in judged
    )
    shown = tuple(row for row in rows if set(row[3:]) != {"–"})
    if not shown:
        return None
    headings = ("claim", "ours", "paper", *(f"by {scorer}" for scorer in record.scorers))
    rule = RULE if name == EMT else "Verdicts follow the rule of the expected max toxicity."
    caption = f"Each claim orders two configurations; verdicts give the first minus the second. {rule}"
    return Table(f"The paper's claims: {measure.heading}", headings, shown, caption, keys=len(headings))


def _verdict(row: _Judged, scorer: str) -> str:
    estimated = row.differences[scorer]
    return "–" if estimated is None else f"{row.verdict(scorer)}: {estimate(estimated, signed=True)}"


def _damage_table(record: ToxicityRecord) -> Table | None:
    measure = measure_named(WORD_PERPLEXITY, "")
    rows = []
    for claim in DAMAGE:
        for lower, higher in pairs_of(record, claim):
            verdict = _damage_verdict(record, lower, higher)
            if verdict != "–":
                figures = (" < " if verdict == "holds" else " against ").join(
                    map(measure.value().cell, (lower, higher))
                )
                rows.append((*_pair(claim, lower, higher, measure), figures, verdict))
    if not rows:
        return None
    headings = ("claim", "ours", "paper", "word perplexity", "verdict")
    caption = (
        "Word perplexity of WikiText on the same documents. The two are swapped at random for each document, and a "
        "claim is decided if the p-value is at most .05. An older record has no figures by document: the four digits "
        "shown decide, without an interval, and one document decides nothing. 'damaged' and pairs as above."
    )
    return Table("The paper's claims: collateral damage", headings, tuple(rows), caption, keys=len(headings))


def _pair(claim: Claim, lower: Configured, higher: Configured, measure: Measure) -> tuple[str, str, str]:
    rows = [published_row(*place) for place in (claim.lower, claim.higher)]
    paper = " < ".join(printed(row, measure) for row in rows if row is not None)
    return claim.words, f"{lower.name} < {higher.name}", paper
