"""A fairness study drawn up for reading."""

from repsurgery.studies.common.report.facts import cautions, title_of
from repsurgery.studies.common.report.numbers import fraction
from repsurgery.studies.common.report.sections import Drawing, Section
from repsurgery.studies.fairness.record import StudyRecord
from repsurgery.studies.fairness.report.facts import fact_tables
from repsurgery.studies.fairness.report.plots import plot_cosines, plot_neighbours, plot_ratios
from repsurgery.studies.fairness.report.tables import result_tables
from repsurgery.studies.significance import study_with_tests

__all__ = ["study_section"]


def study_section(number: int, record: StudyRecord, differs: str) -> Section:
    """Return a fairness study, drawn up as the ``number``-th of its page; ``differs`` tells it from its kin."""
    preset, seconds = record.spec.get("preset", "–"), sum(record.seconds.values())
    return Section(
        anchor=f"study-{number}",
        title=f"{number}. {title_of(record)}" + (f" ({differs})" if differs else ""),
        lead=f"Preset {preset}, finished on {record.created}; its last leg took {seconds:.0f} seconds.",
        cautions=cautions(record),
        results=result_tables(record),
        drawings=_drawings(f"study-{number}", study_with_tests(record)),
        facts=fact_tables(record),
    )


def _drawings(stem: str, record: StudyRecord) -> list[Drawing]:
    found = [
        (
            "tpr-gap",
            plot_ratios(record, "tpr_gap"),
            "TPR gap RMS on the test split against the ratio, with 95% intervals; dashed, in the method's "
            "colour: published.",
        ),
        (
            "accuracy",
            plot_ratios(record, "accuracy"),
            "Accuracy on the test split against the ratio, with 95% intervals; dashed, in the method's colour: "
            "published.",
        ),
        (
            "neighbours",
            plot_neighbours(record),
            f"Share of the k nearest {record.spec.get('neighbour_split', 'dev')} rows with the query's concept, "
            "with 95% intervals. Dotted: chance, "
            "p² + (1 − p)² for two groups.",
        ),
    ]
    for i, setting in enumerate(record.settings, 1):
        where = "" if setting.ratio is None else f" at ratio {fraction(setting.ratio, digits=2)}"
        caption = (
            f"Cosine similarities of a sample ordered by concept{where}, one scale for all panels, which the diagonal "
            "of ones exceeds. Blocks on the diagonal: rows of one concept. What surgery should remove is the "
            "difference of the blocks."
        )
        found.append((f"cosine-{i}", plot_cosines(setting), caption))
    return [Drawing(f"{stem}-{name}.svg", svg, caption) for name, svg, caption in found if svg is not None]
