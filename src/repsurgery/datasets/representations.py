"""`Representations`: vectors with a task label and a concept each, divided into splits."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from repsurgery.arrays import Labels, Rows, freeze
from repsurgery.errors import LabelError, ShapeError

__all__ = ["Representations"]


@dataclass(frozen=True, slots=True, eq=False)
class Representations:
    """Rows of a representation with labels, concepts and splits.

    Parameters
    ----------
    X : (n, d) array
        In memory or a memory map; read-only and never copied.
    labels : (n,) array
        The task's label of each row, for example a profession.
    concepts : (n,) array
        The protected concept of each row, for example a gender.
    splits : mapping of str to slice
        Contiguous rows by name ("train", "dev", "test"), so that ``X[splits["train"]]`` is a view.
    name, source : str
        The name of the rows and their source.
    digest : str
        Identifies the content, to be quoted with results.
    """

    X: Rows
    labels: Labels
    concepts: Labels
    splits: Mapping[str, slice]
    name: str
    source: str
    digest: str

    def __post_init__(self) -> None:
        if self.X.ndim != 2:
            raise ShapeError(f"{self.name} has X of shape {self.X.shape}; it needs (n, d), one row per vector.")
        for what, values in (("labels", self.labels), ("concepts", self.concepts)):
            if values.shape != (len(self.X),):
                raise LabelError(
                    f"{self.name} has {len(self.X)} rows and {what} of shape {values.shape}. Give each row one."
                )
        for split, rows in self.splits.items():
            if not 0 <= rows.start <= rows.stop <= len(self.X) or rows.step not in (None, 1):
                raise ShapeError(
                    f"{self.name} has the split '{split}' = {rows} and {len(self.X)} rows. "
                    "Give contiguous rows, as slice(start, stop)."
                )
        for field in ("X", "labels", "concepts"):
            object.__setattr__(self, field, freeze(getattr(self, field)))
        object.__setattr__(self, "splits", MappingProxyType(dict(self.splits)))

    def __len__(self) -> int:
        return len(self.X)

    def split(self, name: str) -> tuple[Rows, Labels, Labels]:
        """Return views of the rows, labels and concepts of one split."""
        if name not in self.splits:
            raise ShapeError(f"{self.name} has no split '{name}'; it has {', '.join(map(repr, self.splits))}.")
        rows = self.splits[name]
        return self.X[rows], self.labels[rows], self.concepts[rows]
