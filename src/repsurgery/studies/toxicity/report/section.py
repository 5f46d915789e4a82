"""A toxicity study drawn up for reading."""

from repsurgery.studies.common.report.facts import cautions, title_of
from repsurgery.studies.common.report.sections import Drawing, Section
from repsurgery.studies.significance import toxicity_with_tests
from repsurgery.studies.toxicity.record import WRITING, ToxicityRecord
from repsurgery.studies.toxicity.report.facts import toxicity_fact_tables
from repsurgery.studies.toxicity.report.plots import damage_measure, plot_shifts, plot_strengths, plot_tradeoff
from repsurgery.studies.toxicity.report.rows import leading
from repsurgery.studies.toxicity.report.tables import toxicity_tables

__all__ = ["toxicity_section"]


def toxicity_section(number: int, record: ToxicityRecord, differs: str) -> Section:
    """Return a toxicity study, drawn up as the ``number``-th of its page; ``differs`` tells it from its kin."""
    preset = record.spec.get("preset", "–")
    seconds = sum(value for step, value in record.seconds.items() if not step.startswith(WRITING))
    return Section(
        anchor=f"study-{number}",
        title=f"{number}. {title_of(record)}" + (f" ({differs})" if differs else ""),
        lead=f"Preset {preset}, finished on {record.created}; its last leg took {seconds:.0f} seconds.",
        cautions=cautions(record),
        results=toxicity_tables(record),
        drawings=_drawings(f"study-{number}", toxicity_with_tests(record)),
        facts=toxicity_fact_tables(record),
        examples=record.examples,
    )


def _drawings(stem: str, record: ToxicityRecord) -> list[Drawing]:
    against = (
        "WikiText's word perplexity" if damage_measure(record) != "perplexity" else "the continuations' perplexity"
    )
    looks = "Colour: method. Filled: every vector is steered; hollow: only those that the gate picks."
    found = [
        (
            f"tradeoff-{i}",
            plot_tradeoff(record, scorer),
            f"Expected max toxicity by {scorer} against {against}: down and to the left is better. Numbers follow the "
            f"order of the tables; the square is the base. {looks} Circles: fitted on last tokens, triangles: on every "
            "token, diamonds: on-policy. Bars: 95% intervals. Thin lines join the strengths of one map.",
        )
        for i, scorer in enumerate(record.scorers, 1)
    ]
    found += [
        (
            "strengths",
            plot_strengths(record),
            f"Expected max toxicity by {leading(record)} and {against} against strength, with 95% intervals "
            "where there are any. Dashed: selective. Dotted: base.",
        ),
        (
            "shifts",
            plot_shifts(record),
            "Highest toxicity of each prompt's continuations minus that of the base, sorted by itself for each of the "
            "first six configurations at most. Dashed: selective. Below the dotted line a prompt became less toxic.",
        ),
    ]
    return [Drawing(f"{stem}-{name}.svg", svg, caption) for name, svg, caption in found if svg is not None]
