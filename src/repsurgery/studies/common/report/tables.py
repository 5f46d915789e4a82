"""Tables of text, which the terminal and the page both show, and the measures that are their columns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, Protocol, TypeVar

from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.common.report.numbers import Format, change, estimate, formatted, word

__all__ = ["Column", "Measure", "Measured", "Table", "pairs_table", "shown_label", "table_of"]

Row = TypeVar("Row")
RowIn = TypeVar("RowIn", contravariant=True)

_EMPTY = {"–", "not published"}
"""Cells without a value; a column of nothing else is left out."""


@dataclass(frozen=True, slots=True)
class Table:
    """Headings and rows of text; the first ``keys`` columns name the row, the others hold its values."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    keys: int = 1


class Measured(Protocol):
    """A row of a study: measures by key, and their differences from the base."""

    @property
    def measures(self) -> Mapping[str, Estimate]:
        """The measures by key."""

    @property
    def differences(self) -> Mapping[str, Estimate]:
        """Measure minus that of the base, by key."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure as tables show it. The columns of a study's tables are a tuple of these.

    Attributes
    ----------
    key : str
        Its name in a record; names in braces, as in "{scorer}.mean_toxicity", are filled in by `of`.
    heading : str
    table : str
        The table of the study that shows it.
    format : Format
    better : {"lower", "higher"} or None
        Which values are better. The caption of each table that shows the measure says so.
    change : bool
        Whether the change from the base stands beside the value.
    published : str or None
        The name of the published counterpart.
    """

    key: str
    heading: str
    table: str
    format: Format = "share"
    better: Literal["lower", "higher"] | None = None
    change: bool = False
    published: str | None = None

    def of(self, **names: str) -> "Measure":
        """Return the measure with the names in the braces of its key filled in."""
        return replace(self, key=self.key.format(**names))

    def value(self, *, heading: str = "", interval: bool = True) -> "Column[Measured]":
        """Return the column of the values, with their intervals unless ``interval`` is False."""
        return Column(
            heading or self.heading,
            lambda row: formatted(row.measures.get(self.key), self.format, interval=interval),
            self,
        )

    def difference(self, *, star: bool = True) -> "Column[Measured]":
        """Return the column of the changes from the base; ``star`` marks those whose test is significant."""

        def cell(row: Measured) -> str:
            difference = row.differences.get(self.key)
            return change(difference, share=self.format == "share") if star else estimate(difference, signed=True)

        return Column("change from base", cell)

    def columns(self, *, star: bool = True) -> "list[Column[Measured]]":
        """Return the column of the values, and that of the changes if the measure has one."""
        return [self.value(), *([self.difference(star=star)] if self.change else [])]


@dataclass(frozen=True, slots=True)
class Column(Generic[RowIn]):
    """A heading, the function that writes the cell of one row, and the measure that the column shows, if any."""

    heading: str
    cell: Callable[[RowIn], str]
    measure: Measure | None = None


def table_of(
    title: str, names: Sequence[Column[Row]], columns: Sequence[Column[Row]], rows: Iterable[Row], caption: str = ""
) -> Table | None:
    """Return the table of ``rows``: the columns ``names`` always, those of ``columns`` that hold any value.

    Returns
    -------
    Table or None
        None if no column holds a value. The caption ends with the direction in which each measure is better.
    """
    listed = list(rows)
    cells = [(column, [column.cell(row) for row in listed]) for column in columns]
    shown = [(column, texts) for column, texts in cells if not set(texts) <= _EMPTY]
    if not shown:
        return None
    headings = (*(name.heading for name in names), *(column.heading for column, _ in shown))
    body = tuple(
        (*(name.cell(row) for name in names), *(texts[i] for _, texts in shown)) for i, row in enumerate(listed)
    )
    directions = _directions([column.measure for column, _ in shown if column.measure is not None])
    return Table(title, headings, body, " ".join(filter(None, (caption.strip(), directions))), keys=len(names))


def _directions(measures: Iterable[Measure]) -> str:
    sentences = []
    listed = list(measures)
    for better in ("lower", "higher"):
        headings = list(dict.fromkeys(m.heading for m in listed if m.better == better))
        if headings:
            sentences.append(f"{better.capitalize()} is better: {'; '.join(headings)}.")
    return " ".join(sentences)


def pairs_table(title: str, facts: Mapping[str, Any]) -> Table | None:
    """Return names and values as a table of two columns; None if there are none."""
    if not facts:
        return None
    return Table(title, ("name", "value"), tuple((name, word(value)) for name, value in facts.items()), keys=2)


def shown_label(label: object) -> str:
    """Return ``label`` as text, in quotation marks if it is empty or consists of spaces."""
    return str(label) if str(label).strip() else repr(str(label))
