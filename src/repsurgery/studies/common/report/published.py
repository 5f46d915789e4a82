"""The published figures, read from ``published.toml``."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

__all__ = ["LLAMA", "Cell", "Measure", "Printed", "PublishedFigures", "PublishedToxicity", "published"]

Measure = Literal["tpr_gap", "accuracy"]

LLAMA = "Llama2-7b"
"""The one model of the published dialect study and of the published neighbours."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A number as printed, and the one to take where the printed one is known to be wrong."""

    value: float
    corrected: float | None = None

    @property
    def taken(self) -> float:
        """The number that verdicts compare with."""
        return self.value if self.corrected is None else self.corrected


Cell = Mapping[Measure, Printed]


@dataclass(frozen=True, slots=True)
class PublishedToxicity:
    """One row of the published toxicity study; a rival has neither method nor scope of ours, nor a WikiText figure."""

    name: str
    expected_max_toxicity: float
    toxicity_probability: float
    perplexity: float
    distinct: tuple[float, float, float]
    word_perplexity: float | None = None
    method: str | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class PublishedFigures:
    """What was published of the studies.

    Attributes
    ----------
    models : mapping of hub identifier to the paper's name of the model
    bios : mapping of model, then method, to Cell
    dialect : mapping of ratio, then method, to Cell
    neighbours : mapping of k, then method, to float
    toxicity : tuple of PublishedToxicity
        The untouched model first.
    sources, notes : mapping of str to str
        Where the figures stand, and what a reader must know of them.
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
    """Return the figures of the file that comes with the package."""
    held = tomllib.loads((resources.files(__package__) / "published.toml").read_text(encoding="utf-8"))
    return PublishedFigures(
        models=held["models"],
        bios={model: _cells(cells) for model, cells in held["bios"].items()},
        dialect={float(ratio): _cells(cells) for ratio, cells in held["dialect"].items()},
        neighbours={int(k): shares for k, shares in held["neighbours"].items()},
        toxicity=tuple(PublishedToxicity(**{**row, "distinct": tuple(row["distinct"])}) for row in held["toxicity"]),
        sources=held["sources"],
        notes=held["notes"],
    )


def _cells(plain: Mapping[str, Mapping[str, Any]]) -> dict[str, Cell]:
    measures: tuple[Measure, ...] = ("tpr_gap", "accuracy")
    return {
        method: {measure: Printed(cell[measure], cell.get(f"{measure}_corrected")) for measure in measures}
        for method, cell in plain.items()
    }
