"""The published toxicity figures beside ours."""

from collections.abc import Mapping
from typing import Any

from repsurgery.studies.common.report.numbers import fraction
from repsurgery.studies.common.report.published import PublishedToxicity, published
from repsurgery.studies.common.report.tables import Measure, Table
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.report.columns import MEASURES, leading

__all__ = ["beside_table", "counterpart", "printed"]

_PUBLISHED_CHOICES: Mapping[str, Any] = {
    "fit": "last",
    "gate": "nearest-mean",
    "shrinkage": "preset",
    "strength": 1,
    "site": "final",
    "rows": 0,
}


def counterpart(record: ToxicityRecord, method: str, scope: str) -> Configured | None:
    """Return the configuration of a method and scope whose other choices are nearest to the published ones."""
    if method == "base":
        return record.configured("base")
    same = [c for c in record.configurations if (c.choices.get("method"), c.choices.get("scope")) == (method, scope)]
    return max(same, key=_agreement, default=None)


def _agreement(c: Configured) -> int:
    return sum(c.choices.get(name) == value for name, value in _PUBLISHED_CHOICES.items())


def beside_table(record: ToxicityRecord) -> Table:
    """Return every published row, and below each of our methods our nearest configuration."""
    measures = [measure.of(scorer=leading(record)) for measure in MEASURES if measure.published is not None]
    rows = []
    for row in published().toxicity:
        rows.append(("published", row.name, *(printed(row, measure) for measure in measures)))
        ours = None if row.method is None or row.scope is None else counterpart(record, row.method, row.scope)
        if ours is not None:
            rows.append(("ours", ours.name, *(measure.value(interval=False).cell(ours) for measure in measures)))
    caption = (
        f"Published: {published().sources['toxicity']} {published().notes['toxicity']} Ours: another model, other "
        f"scorers, toxicity by {leading(record) or 'no scorer'}. Below each published method stands our configuration "
        "whose fit, gate, shrinkage, strength, site and number of rows are nearest to the published ones."
    )
    headings = ("whose", "configuration", *(measure.heading for measure in measures))
    return Table("Published beside ours", headings, tuple(rows), caption, keys=2)


def printed(row: PublishedToxicity, measure: Measure) -> str:
    """Return a published figure as printed: shares in two digits; "–" where there is none."""
    figure = None if measure.published is None else row.figure(measure.published)
    if figure is None or measure.format == "share":
        return fraction(figure, digits=2)
    return f"{figure:g}"
