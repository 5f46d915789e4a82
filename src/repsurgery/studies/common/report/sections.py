"""The section of one study, from a record of any kind: what the page and the Markdown report both show."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from repsurgery.studies.common.environment import environment
from repsurgery.studies.common.report.tables import Table

__all__ = ["Drawing", "Figure", "Section", "build_section", "cautions", "distinctions", "titles"]

Figure = tuple[str, str | None, str]
"""A name, the SVG text (None if there is nothing to draw) and a caption."""


ModelOf = Callable[[Any], Mapping[str, Any]]
"""A function from a record to what it says of the model that read the texts."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure as SVG text, and the name of the file beside the Markdown report that contains it."""

    file: str
    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Section:
    """One record, ready to be shown; ``results`` begins with the main tables."""

    anchor: str
    title: str
    lead: str
    cautions: list[str]
    results: list[Table]
    drawings: list[Drawing]
    facts: list[Table]
    examples: Sequence[Any] = ()


def build_section(
    number: int,
    record: Any,
    title: str,
    *,
    results: list[Table],
    figures: Iterable[Figure],
    facts: list[Table],
    examples: Sequence[Any] = (),
) -> Section:
    """Return the section of ``record``, the ``number``-th of its page; figures without a drawing are left out."""
    anchor, seconds, preset = f"study-{number}", sum(record.seconds.values()), record.spec.get("preset", "–")
    return Section(
        anchor,
        f"{number}. {title}",
        f"Preset {preset}, finished on {record.created}; the last run took {seconds:.0f} seconds.",
        cautions(record),
        results,
        [Drawing(f"{anchor}-{name}.svg", svg, caption) for name, svg, caption in figures if svg is not None],
        facts,
        examples,
    )


def titles(records: Sequence[Any], model_of: ModelOf) -> list[str]:
    """Return the title of each study: experiment, data, model, and the options in which it differs from others."""
    pairs = zip(records, distinctions(records, model_of), strict=True)
    return [_name(record, model_of) + (f" ({options})" if options else "") for record, options in pairs]


def distinctions(records: Sequence[Any], model_of: ModelOf) -> list[str]:
    """Return, for each study, the options in which studies of the same experiment, data, model and preset differ."""
    kinds = [(_name(record, model_of), record.spec.get("preset")) for record in records]
    lines = []
    for record, kind in zip(records, kinds, strict=True):
        similar = [other for other, same in zip(records, kinds, strict=True) if same == kind]
        options = {name: value for name, value in record.spec.items() if isinstance(value, str | int | float)}
        differing = [name for name in options if any(other.spec.get(name) != options[name] for other in similar)]
        lines.append(", ".join(f"{name} {options[name]}" for name in differing))
    return lines


def _name(record: Any, model_of: ModelOf) -> str:
    return f"{record.experiment}: {record.data.get('name', '–')}, {model_of(record).get('name', '–')}"


def cautions(record: Any) -> list[str]:
    """Return what to read first: the cautions of the data, the notes of the record, and a change of version."""
    lines = [*map(str, record.data.get("cautions", ())), *record.notes]
    theirs, ours = record.environment.get("repsurgery"), environment()["repsurgery"]
    if theirs is None:
        lines.append("The record does not say which version of repsurgery wrote it.")
    elif theirs != ours:
        lines.append(
            f"The record was made by repsurgery {theirs} and this page by {ours}; the meaning of numbers may differ."
        )
    return lines
