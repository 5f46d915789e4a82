"""The published figures, read from ``published.toml``."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

__all__ = ["LLAMA", "Cell", "Printed", "PublishedFigures", "PublishedToxicity", "TaskMeasure", "published"]

TaskMeasure = Literal["tpr_gap", "accuracy"]
"""The published measures of a fairness study."""

LLAMA = "Llama2-7b"
"""The only model of the published dialect study and of the published neighbours."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A number as printed, and its correction if the printed number is known to be wrong."""

    value: float
    corrected: float | None = None

    @property
    def taken(self) -> float:
        """The number that verdicts compare with."""
        return self.value if self.corrected is None else self.corrected


Cell = Mapping[TaskMeasure, Printed]


@dataclass(frozen=True, slots=True)
class PublishedToxicity:
    """One row of the published toxicity study.

    A rival has no method and scope of ours and no WikiText figure; ``rival`` is the first word of its lines in a study.
    """

    name: str
    expected_max_toxicity: float
    toxicity_probability: float
    perplexity: float
    distinct: tuple[float, float, float]
    word_perplexity: float | None = None
    method: str | None = None
    scope: str | None = None
    rival: str | None = None

    def figure(self, name: str) -> float | None:
        """Return one figure by name; "distinct.2" is the second of ``distinct``."""
        field, _, place = name.partition(".")
        value: float | tuple[float, ...] | None = getattr(self, field)
        return value[int(place) - 1] if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class PublishedFigures:
    """The published figures of all studies.

    Attributes
    ----------
    models : mapping of hub identifier to the paper's name of the model
    bios : mapping of model, then method, to Cell
    dialect : mapping of ratio, then method, to Cell
    neighbours : mapping of k, then method, to float
    toxicity : tuple of PublishedToxicity
        The unsteered model first.
    sources, notes : mapping of str to str
        Where the figures were published, and what a reader must know about them.
    """

    models: Mapping[str, str]
    bios: Mapping[str, Mapping[str, Cell]]
    dialect: Mapping[float, Mapping[str, Cell]]
    neighbours: Mapping[int, Mapping[str, float]]
    toxicity: tuple[PublishedToxicity, ...]
    sources: Mapping[str, str]
    notes: Mapping[str, str]


@cache
def published() -> PublishedFigures:
    """Return the figures of ``published.toml``."""
    figures = tomllib.loads((resources.files(__package__) / "published.toml").read_text(encoding="utf-8"))
    return PublishedFigures(
        models=figures["models"],
        bios={model: _cells(cells) for model, cells in figures["bios"].items()},
        dialect={float(ratio): _cells(cells) for ratio, cells in figures["dialect"].items()},
        neighbours={int(k): shares for k, shares in figures["neighbours"].items()},
        toxicity=tuple(PublishedToxicity(**{**row, "distinct": tuple(row["distinct"])}) for row in figures["toxicity"]),
        sources=figures["sources"],
        notes=figures["notes"],
    )


def _cells(table: Mapping[str, Mapping[str, Any]]) -> dict[str, Cell]:
    measures: tuple[TaskMeasure, ...] = ("tpr_gap", "accuracy")
    return {
        method: {measure: Printed(cell[measure], cell.get(f"{measure}_corrected")) for measure in measures}
        for method, cell in table.items()
    }
