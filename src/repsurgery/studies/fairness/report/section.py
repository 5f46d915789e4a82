"""The sections of fairness studies in a report."""

from collections.abc import Iterator, Sequence

from repsurgery.studies.common.report.numbers import fraction
from repsurgery.studies.common.report.sections import Figure, Section, build_section, titles
from repsurgery.studies.fairness.record import StudyRecord
from repsurgery.studies.fairness.report.equal_accuracy import plot_equal_accuracy
from repsurgery.studies.fairness.report.facts import fact_tables
from repsurgery.studies.fairness.report.plots import plot_cosines, plot_neighbours, plot_ratios
from repsurgery.studies.fairness.report.significance import study_with_tests
from repsurgery.studies.fairness.report.tables import result_tables
from repsurgery.studies.fairness.report.verdicts import published_study

__all__ = ["study_sections"]


def study_sections(records: Sequence[StudyRecord], *, first: int = 1) -> list[Section]:
    """Return a section for each study, numbered from ``first``."""
    names = titles(records, lambda record: record.encoder)
    return [
        build_section(
            number,
            record,
            title,
            results=result_tables(record),
            figures=_figures(study_with_tests(record)),
            facts=fact_tables(record),
        )
        for number, (record, title) in enumerate(zip(records, names, strict=True), first)
    ]


def _figures(record: StudyRecord) -> Iterator[Figure]:
    by_ratio = "on the test split against the ratio, with 95% intervals."
    if published_study(record) == "dialect":
        by_ratio += " Dashed lines in the method's colour: published."
    yield "tpr-gap", plot_ratios(record, "tpr_gap"), f"TPR gap RMS {by_ratio}"
    yield "accuracy", plot_ratios(record, "accuracy"), f"Accuracy {by_ratio}"
    yield (
        "equal-accuracy",
        plot_equal_accuracy(record),
        "TPR gap RMS against accuracy on the test split, a line for each method: from the base on over strengths, or "
        "over alpha (dashed). Lower and further to the right is better.",
    )
    yield (
        "neighbours",
        plot_neighbours(record),
        f"Share of the k nearest {record.spec.get('neighbour_split', 'dev')} rows that have the concept of the query, "
        "with 95% intervals. Dotted: chance level, p² + (1 − p)² for two groups.",
    )
    for i, setting in enumerate(record.settings, 1):
        where = "" if setting.ratio is None else f" at ratio {fraction(setting.ratio, digits=2)}"
        yield (
            f"cosine-{i}",
            plot_cosines(setting),
            f"Cosine similarities of a sample ordered by concept{where}. All panels have one colour scale, which the "
            "ones on the diagonal exceed. The blocks on the diagonal are rows of one concept. Steering should remove "
            "the difference between the blocks.",
        )
