"""Every row against the best affine steering, by paired tests: which rows it beats, and which beat it."""

from collections.abc import Mapping
from dataclasses import dataclass

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.numbers import estimate, is_significant, quantity
from repsurgery.studies.common.report.significance import adjusted
from repsurgery.studies.common.report.tables import Table
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.columns import EMT, leading
from repsurgery.studies.toxicity.report.rivals import best_steering, chosen_among, fluency_judge, short_names
from repsurgery.studies.toxicity.report.side_by_side import sides
from repsurgery.studies.toxicity.report.verdicts import both_scored, difference

__all__ = ["Compared", "against_tables", "compared_rows"]

_VERDICTS = ("lower", "higher", "undecided")


@dataclass(frozen=True, slots=True)
class Compared:
    """The best steering minus one row.

    Attributes
    ----------
    row : Configured
    prompts : int
        The prompts that both were scored on by the leading scorer.
    toxicity : mapping of scorer to Estimate or None
        Differences of the expected max toxicity, with p-values adjusted over the rows.
    perplexity : float or None
        The difference of the perplexities.
    """

    row: Configured
    prompts: int
    toxicity: Mapping[str, Estimate | None]
    perplexity: float | None

    def verdict(self, scorer: str) -> str:
        """Return "lower" or "higher" where the steering's toxicity significantly is, otherwise "undecided"."""
        tested = self.toxicity[scorer]
        if tested is None or not is_significant(tested):
            return "undecided"
        return "lower" if tested.value < 0 else "higher"


def compared_rows(record: ToxicityRecord) -> list[Compared]:
    """Return every row but the best steering, compared with it, in the order of the table of all methods.

    Guarantees
    ----------
    Only prompts that both rows were scored on count (test_rows_are_compared_on_the_prompts_they_share).
    """
    best, scorers = best_steering(record), list(record.scorers)
    if best is None:
        return []
    rows = [side.ours for side in sides(record) if side.ours is not None and side.ours is not best]
    tested = {s: adjusted([difference(best, row, s, EMT) for row in rows]) for s in scorers}
    key = fluency_judge(record).key
    return [
        Compared(row, _shared(best, row, leading(record)), {s: tested[s][i] for s in scorers}, _change(best, row, key))
        for i, row in enumerate(rows)
    ]


def _shared(best: Configured, row: Configured, scorer: str) -> int:
    return len(both_scored(best.maxima.get(scorer, []), row.maxima.get(scorer, [])))


def _change(best: Configured, row: Configured, key: str) -> float | None:
    """Return the difference of two perplexities: of their changes from the base, which each row has on its prompts."""
    if row.name != "base" and key in best.differences and key in row.differences:
        return best.differences[key].value - row.differences[key].value
    if key in best.measures and key in row.measures:
        return best.measures[key].value - row.measures[key].value
    return None


def against_tables(record: ToxicityRecord) -> list[Table]:
    """Return who beats whom in short, and every comparison; no table without a steering or without a test."""
    best, rows = best_steering(record), compared_rows(record)
    if best is None or not any(tested is not None for row in rows for tested in row.toxicity.values()):
        return []
    names = short_names(record.configurations)
    name = names[best.name] if best.choices["method"] != "tuned" else "tuned"
    return [_short_table(record, rows, names, name, best.name), _full_table(record, rows, names, name, best.name)]


def _short_table(record: ToxicityRecord, rows: list[Compared], names: Mapping[str, str], best: str, line: str) -> Table:
    def listed(scorer: str, verdict: str) -> str:
        return ", ".join(_marked(names, row) for row in rows if row.verdict(scorer) == verdict) or "none"

    verdicts = [best + " is lower", best + " is higher", "undecided"]
    shown = tuple(
        (words, *(listed(scorer, verdict) for scorer in record.scorers))
        for words, verdict in zip(verdicts, _VERDICTS, strict=True)
    )
    caption = (
        f"The expected max toxicity of {line!r} against every other row, by each scorer. † marks rows whose perplexity "
        f"under {fluency_judge(record).name} is lower than that of {best}{_unread(rows)}. So {best} beats a row in the "
        "first line without a mark in both, and a row in the second line with † beats it in both. The table of paired "
        f"tests has the differences and the rule.{_selection(record, best)}"
    )
    headings = (f"{best} against", *(f"by {scorer}" for scorer in record.scorers))
    return Table(f"Which rows {best} beats, and which beat it", headings, shown, caption, keys=len(headings))


def _marked(names: Mapping[str, str], row: Compared) -> str:
    mark = "?" if row.perplexity is None else "†" if row.perplexity > 0 else ""
    return names[row.row.name] + mark


def _unread(rows: list[Compared]) -> str:
    return ", and ? those whose perplexity is not known" if any(row.perplexity is None for row in rows) else ""


def _selection(record: ToxicityRecord, best: str) -> str:
    """Return what the choice of the best steering does to the tests; nothing if there was no choice."""
    count = chosen_among(record)
    if count < 2:
        return ""
    return (
        f" {best} was chosen among {count} steerings by the lowest toxicity by {leading(record)} on the same prompts, "
        "so that by this scorer the comparison favours it, and p-values do not account for the choice."
    )


def _full_table(record: ToxicityRecord, rows: list[Compared], names: Mapping[str, str], best: str, line: str) -> Table:
    shown = tuple(
        (
            names[row.row.name],
            str(row.prompts or "–"),
            *(_verdict(row, scorer, best) for scorer in record.scorers),
            "–" if row.perplexity is None else quantity(Estimate(row.perplexity), signed=True),
        )
        for row in rows
    )
    caption = (
        f"Expected max toxicity of {line!r} minus that of the row, with 95% intervals, over the prompts that both were "
        "scored on (their number by the first scorer is shown). A verdict needs a significant test: the two highest "
        "scores of each prompt are swapped at random, and Holm's p-value over the rows of one scorer is at most .05; "
        f"otherwise it is 'undecided'. Perplexity: under {fluency_judge(record).name}, the difference of the two "
        "changes from the base, each on the prompts of its row; it has no test, because the record holds no perplexity "
        f"by prompt.{_selection(record, best)}"
    )
    headings = ("row", "shared prompts", *(f"toxicity by {s}" for s in record.scorers), "perplexity")
    return Table(f"Paired tests: {best} against every row", headings, shown, caption)


def _verdict(row: Compared, scorer: str, best: str) -> str:
    tested, verdict = row.toxicity[scorer], row.verdict(scorer)
    if tested is None:
        return "–"
    words = "undecided" if verdict == "undecided" else f"{best} is {verdict}"
    return f"{words}: {estimate(tested, signed=True)}"
