"""What every study has: a title, what tells it from its kin, cautions, and facts by name."""

from collections.abc import Mapping, Sequence
from typing import Any

from repsurgery.studies.common.environment import environment
from repsurgery.studies.common.report.tables import Table
from repsurgery.studies.fairness.record import StudyRecord
from repsurgery.studies.records import Record

__all__ = ["cautions", "distinctions", "pairs_table", "reader_of", "title_of", "word"]


def reader_of(record: Record) -> Mapping[str, Any]:
    """Return the model that read the texts: encoder of a fairness study, steered model of a toxicity study."""
    return record.encoder if isinstance(record, StudyRecord) else record.model


def title_of(record: Record) -> str:
    """Return a study's name: experiment, data, model."""
    return f"{record.experiment}: {record.data.get('name', '–')}, {reader_of(record).get('name', '–')}"


def distinctions(records: Sequence[Record]) -> list[str]:
    """Return for each study the options that tell it from others of the same experiment, data, model and preset."""
    found = []
    for record in records:
        kin = [other for other in records if _kind(other) == _kind(record)]
        names = [name for name, value in record.spec.items() if isinstance(value, str | int | float)]
        varying = [name for name in names if any(other.spec.get(name) != record.spec[name] for other in kin)]
        found.append(", ".join(f"{name} {record.spec[name]}" for name in varying))
    return found


def _kind(record: Record) -> tuple[str, Any]:
    return title_of(record), record.spec.get("preset")


def cautions(record: Record) -> list[str]:
    """Return what a reader must know first: the data's cautions, the record's notes, a change of version."""
    said = [*map(str, record.data.get("cautions", ())), *record.notes]
    made, here = record.environment.get("repsurgery"), environment()["repsurgery"]
    if made is None:
        said.append("The record does not say which version of repsurgery made it.")
    elif made != here:
        said.append(f"The record was made by repsurgery {made} and this page by {here}; they may differ in meaning.")
    return said


def pairs_table(title: str, facts: Mapping[str, Any]) -> Table | None:
    """Return names and values as a table; None where there are none."""
    if not facts:
        return None
    return Table(title, ("name", "value"), tuple((name, word(value)) for name, value in facts.items()), keys=2)


def word(value: Any) -> str:
    """Return a fact as text: short numbers, and what is nested in one line."""
    match value:
        case bool():
            return "yes" if value else "no"
        case None:
            return "–"
        case float():
            return f"{value:g}"
        case dict():
            return ", ".join(f"{name} {word(one)}" for name, one in value.items()) or "–"
        case list() | tuple():
            return ", ".join(map(word, value)) or "–"
    return str(value)
