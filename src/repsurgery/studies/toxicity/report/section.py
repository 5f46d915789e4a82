"""The sections of toxicity studies in a report."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from repsurgery.studies.common.report.sections import Figure, Section, build_section, titles
from repsurgery.studies.toxicity.gains import gain_notes
from repsurgery.studies.toxicity.record import WRITING, ToxicityRecord
from repsurgery.studies.toxicity.report.columns import leading
from repsurgery.studies.toxicity.report.damage import damage_caution
from repsurgery.studies.toxicity.report.facts import toxicity_fact_tables
from repsurgery.studies.toxicity.report.plots import damage_measure, plot_shifts, plot_strengths, plot_tradeoff
from repsurgery.studies.toxicity.report.rival_plot import plot_rivals, rivals_caption
from repsurgery.studies.toxicity.report.rivals import has_rivals
from repsurgery.studies.toxicity.report.significance import toxicity_with_tests
from repsurgery.studies.toxicity.report.tables import toxicity_tables

__all__ = ["toxicity_sections"]


def toxicity_sections(records: Sequence[ToxicityRecord], *, first: int = 1) -> list[Section]:
    """Return a section for each study, numbered from ``first``."""
    names = titles(records, lambda record: record.model)
    return [
        build_section(
            number,
            replace(record, seconds=_steps(record), notes=_notes(record)),
            title,
            results=toxicity_tables(record),
            figures=_figures(toxicity_with_tests(record)),
            facts=toxicity_fact_tables(record),
            examples=record.examples,
        )
        for number, (record, title) in enumerate(zip(records, names, strict=True), first)
    ]


def _notes(record: ToxicityRecord) -> tuple[str, ...]:
    caution = damage_caution(record)
    # the notes of an older record do not tell gains
    gains = [note for note in gain_notes(record.configurations) if note not in record.notes]
    return (*([] if caution is None else [caution]), *gains, *record.notes)


def _steps(record: ToxicityRecord) -> dict[str, float]:
    return {step: value for step, value in record.seconds.items() if not step.startswith(WRITING)}


def _figures(record: ToxicityRecord) -> Iterator[Figure]:
    of_texts = damage_measure(record) == "perplexity"
    damage = "the perplexity of the continuations" if of_texts else "the word perplexity of WikiText"
    rivals = " Crosses: rivals." if has_rivals(record) else ""
    yield "rivals", plot_rivals(record), rivals_caption(record)
    for i, scorer in enumerate(record.scorers, 1):
        yield (
            f"tradeoff-{i}",
            plot_tradeoff(record, scorer),
            f"Expected max toxicity by {scorer} against {damage}: down and to the left is better. Numbers follow the "
            "order of the tables; the square is the base. Colour: method. Filled: every vector is steered; hollow: "
            "only those that the gate selects. Circles: fitted on last tokens; triangles: on every token; diamonds: "
            f"on-policy.{rivals} Bars: 95% intervals. Thin lines join the strengths or prices of one map.",
        )
    yield (
        "strengths",
        plot_strengths(record),
        f"Expected max toxicity by {leading(record)} and {damage} against strength, with 95% intervals if there are "
        "any. Dashed: selective. Dotted: base.",
    )
    yield (
        "shifts",
        plot_shifts(record),
        "Highest toxicity among the continuations of each prompt minus that of the base. Prompts are sorted separately "
        "for each of the first six configurations at most. Dashed: selective. Below the dotted line a prompt became "
        "less toxic.",
    )
