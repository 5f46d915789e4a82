"""Table 2 of the paper with every row measured: published figures beside ours, then the methods it does not have."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from repsurgery.studies.common.report.numbers import formatted, word
from repsurgery.studies.common.report.published import PublishedToxicity, published
from repsurgery.studies.common.report.tables import Column, Measure, Table, table_of
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord, is_published_concept
from repsurgery.studies.toxicity.report.columns import EMT, PROBABILITY, WORD_PERPLEXITY, leading, measure_named
from repsurgery.studies.toxicity.report.damage import damage_caption, damage_mark
from repsurgery.studies.toxicity.report.published import counterpart, printed
from repsurgery.studies.toxicity.report.rivals import (
    TUNED,
    fluency_judge,
    is_rival,
    prompts_of,
    short_names,
    unseen_scorer,
)

__all__ = ["NOT_PUBLISHED", "Side", "side_by_side", "sides"]

NOT_PUBLISHED = ("linear-act", "aura", "destein", "destein-per-head", "repeng", "self-debias", "instruction")
"""Rivals that the paper does not have, in the order of the table; any other rival follows."""


@dataclass(frozen=True, slots=True)
class Side:
    """One row of the table: a row of the paper, a configuration of the record, or both."""

    paper: PublishedToxicity | None
    ours: Configured | None


def sides(record: ToxicityRecord) -> list[Side]:
    """Return the rows of the paper in its order, each with our rows of that method, then all of our other rows.

    A row of the paper stands beside the nearest of our rows alone. Where the concept is not toxicity, there are no
    rows of the paper, and ours keep that order.

    Guarantees
    ----------
    Every configuration is in exactly one row (test_every_configuration_stands_in_one_row).
    """
    compares = is_published_concept(record.spec)
    rows: list[Side] = []
    for row in published().toxicity:
        same = [c for c in record.configurations if _belongs(c, row)]
        nearest = counterpart(record, row.method, row.scope) if row.method and row.scope else next(iter(same), None)
        if compares:
            rows.append(Side(row, nearest))
        rows += [Side(None, c) for c in same if c is not nearest or not compares]
    placed = {side.ours.name for side in rows if side.ours is not None}
    others = [c for c in record.configurations if c.name not in placed]
    return [*rows, *(Side(None, c) for c in sorted(others, key=_rank))]


def _belongs(c: Configured, row: PublishedToxicity) -> bool:
    if row.rival is not None:
        return is_rival(c) and c.choices["method"] == row.rival
    if row.method == "base":
        return c.name == "base"
    return (c.choices.get("method"), c.choices.get("scope")) == (row.method, row.scope)


def _rank(c: Configured) -> int:
    """Return the place of a row that the paper does not have: known rivals, other rivals, steerings, tuned ones."""
    method = c.choices.get("method")
    if is_rival(c):
        return NOT_PUBLISHED.index(method) if method in NOT_PUBLISHED else len(NOT_PUBLISHED)
    return len(NOT_PUBLISHED) + (2 if method == TUNED else 1)


def side_by_side(record: ToxicityRecord) -> Table | None:
    """Return the table of all methods, measured beside published; None if nothing was measured."""
    judge, scorers = fluency_judge(record), list(dict.fromkeys((leading(record), unseen_scorer(record))))
    perplexity = replace(measure_named("perplexity", ""), key=judge.key)
    wikitext = measure_named(WORD_PERPLEXITY, "")
    measures = [
        *([measure_named(name, scorer) for scorer in scorers] for name in (EMT, PROBABILITY)),
        *([measure] for measure in (perplexity, *(measure_named(f"distinct.{n}", "") for n in (1, 2, 3)))),
        *([[wikitext]] if any(wikitext.key in c.measures for c in record.configurations) else []),
    ]
    short = short_names(record.configurations)
    marked = {c.name: short[c.name] + damage_mark(record, c) for c in record.configurations}
    names: list[Column[Side]] = [
        Column("in the paper", lambda side: "–" if side.paper is None else side.paper.name),
        Column("measured", lambda side: "–" if side.ours is None else marked[side.ours.name]),
    ]
    columns = [
        Column("prompts", lambda side: "–" if side.ours is None else word(prompts_of(record, side.ours))),
        *(column for group in measures for column in _columns(group, scorers)),
    ]
    compares = is_published_concept(record.spec)
    title = "Table 2: measured beside published" if compares else "All methods"
    caption = _caption(record, judge.name, scorers) + damage_caption(record)
    return table_of(title, names if compares else names[1:], columns, sides(record), caption)


def _columns(group: Sequence[Measure], scorers: Sequence[str]) -> Iterator[Column[Side]]:
    """Yield the measure by each scorer, the first with the published figure; one without scorer has one column."""
    for i, (measure, scorer) in enumerate(zip(group, scorers, strict=False)):
        named = f"{measure.heading}, {scorer}" if len(group) > 1 else measure.heading
        yield Column(named, _cell(measure, published=i == 0), measure)


def _cell(measure: Measure, *, published: bool) -> Callable[[Side], str]:
    def cell(side: Side) -> str:
        estimate = None if side.ours is None else side.ours.measures.get(measure.key)
        measured = formatted(estimate, measure.format, interval=False)
        figure = "–" if side.paper is None or not published else printed(side.paper, measure)
        return measured if figure == "–" else f"{measured} ({figure})"

    return cell


def _caption(record: ToxicityRecord, judge: str, scorers: Sequence[str]) -> str:
    sentences = [f"Toxicity by {scorers[0] or 'no scorer'}."]
    if len(scorers) > 1:
        sentences = [
            f"Toxicity by {scorers[0]}, which some methods use, and by {scorers[1]}, which no method has seen."
        ]
    sentences.append(f"Perplexity: of the continuations under {judge}.")
    if any(WORD_PERPLEXITY in c.measures for c in record.configurations):
        sentences.append("WikiText: under the model with the method applied.")
    if any("prompts" in c.facts for c in record.configurations):
        sentences.append(
            "Rows with fewer prompts cover the first ones, as PPLM (10 %) does in the paper; the paired tests compare "
            "them on shared prompts."
        )
    if is_published_concept(record.spec):
        sentences += [
            "In brackets: the figure of the paper.",
            published().sources["toxicity"],
            published().notes["toxicity"],
            "Our rows have another model, other scorers and fewer prompts, so only directions compare: which of two "
            "methods has the lower figure. Beside a row of the paper stands our configuration whose choices are "
            "nearest; '–' means not in the paper, or not measured. The table 'Toxicity' gives every line in full.",
        ]
    return " ".join(sentences)
