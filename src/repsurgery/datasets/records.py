"""`LabelledTexts` and `ConceptTexts`: texts with labels, source, licence and digest."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from repsurgery.checkpoint import digest
from repsurgery.errors import DataError, LabelError, ShapeError

__all__ = ["ConceptTexts", "LabelledTexts", "require_texts", "rows_digest"]


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Texts and their labels, in order.

    Parameters
    ----------
    texts : tuple of str
        The n texts; none is empty.
    labels : tuple of str
        The n labels; none is empty.
    name, source, licence : str
        The name of the texts, their source, and their terms of use.
    cautions : tuple of str
        Sentences about limits of the data, such as rows that were left out, that reports repeat.

    Attributes
    ----------
    digest : str
        SHA-256 of texts and labels in order, to be quoted with results.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    name: str
    source: str
    licence: str = "unknown"
    cautions: tuple[str, ...] = ()
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", tuple(self.texts))
        object.__setattr__(self, "labels", tuple(self.labels))
        require_texts(self.name, self.texts)
        _require_one_each(self.name, len(self.texts), self.labels, "label")
        object.__setattr__(self, "digest", rows_digest(self.texts, self.labels))

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def counts(self) -> dict[str, int]:
        """Return how many texts carry each label, labels sorted."""
        return dict(sorted(Counter(self.labels).items()))

    def where(self, rows: Any) -> "LabelledTexts":
        """Return the texts at ``rows``: n booleans, or indices in the order wanted."""
        chosen = _indices(self.name, rows, len(self.texts))
        texts, labels = (tuple(column[i] for i in chosen) for column in (self.texts, self.labels))
        return replace(self, texts=texts, labels=labels)


@dataclass(frozen=True, slots=True)
class ConceptTexts:
    """Texts with a task label y and a concept z each, in order.

    Parameters
    ----------
    texts : tuple of str
        The n texts; none is empty.
    labels : tuple of str
        What a classifier should predict, one per text; "all" everywhere if there is no task.
    concepts : tuple of str
        What the classifier should not depend on, one per text.
    splits : tuple of str
        The name of each text's split ("train", "dev", "test"), or an empty tuple.
    name, source, licence : str
        The name of the texts, their source, and their terms of use.
    cautions : tuple of str
        Sentences about limits of the data, such as a confound, that reports repeat.

    Attributes
    ----------
    digest : str
        SHA-256 of texts, labels, concepts and splits in order, to be quoted with results.

    Guarantees
    ----------
    * The digest depends on rows and their order, not on names (test_the_digest_of_a_study_depends_on_its_rows_alone).
    * `where` keeps each text with its own label, concept and split (test_where_keeps_rows_together).
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    concepts: tuple[str, ...]
    splits: tuple[str, ...] = ()
    name: str = field(kw_only=True)
    source: str = field(kw_only=True)
    licence: str = field(default="unknown", kw_only=True)
    cautions: tuple[str, ...] = field(default=(), kw_only=True)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        for column in ("texts", "labels", "concepts", "splits", "cautions"):
            object.__setattr__(self, column, tuple(getattr(self, column)))
        require_texts(self.name, self.texts)
        _require_one_each(self.name, len(self.texts), self.labels, "label")
        _require_one_each(self.name, len(self.texts), self.concepts, "concept")
        if self.splits:
            _require_one_each(self.name, len(self.texts), self.splits, "split")
        splits = self.splits or ("",) * len(self.texts)
        object.__setattr__(self, "digest", rows_digest(self.texts, self.labels, self.concepts, splits))

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Return how many texts there are of each label and concept, both sorted; absent pairs count 0."""
        cells = Counter(zip(self.labels, self.concepts, strict=True))
        concepts = sorted(set(self.concepts))
        return {label: {z: cells[label, z] for z in concepts} for label in sorted(set(self.labels))}

    def where(self, rows: Any) -> "ConceptTexts":
        """Return the texts at ``rows``: n booleans, or indices in the order wanted."""
        chosen = _indices(self.name, rows, len(self.texts))
        columns = (self.texts, self.labels, self.concepts, self.splits)
        texts, labels, concepts, splits = (tuple(column[i] for i in chosen) if column else () for column in columns)
        return ConceptTexts(
            texts,
            labels,
            concepts,
            splits,
            name=self.name,
            source=self.source,
            licence=self.licence,
            cautions=self.cautions,
        )


def require_texts(name: str, texts: Sequence[str]) -> None:
    """Raise a `DataError` that names the first text that is empty or not a string."""
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"{name}: text {row} is a {type(text).__name__}. Give texts as strings.")
        if not text.strip():
            raise DataError(f"{name}: text {row} is empty. Remove it.")


def _require_one_each(name: str, n: int, values: Sequence[str], what: str) -> None:
    if len(values) != n:
        raise LabelError(f"{name} has {n} texts and {len(values)} {what}s. Give each text one {what}.")
    for row, value in enumerate(values):
        if not isinstance(value, str):
            raise LabelError(f"{name}: the {what} of text {row} is a {type(value).__name__}. Give {what}s as strings.")
        if not value.strip():
            raise LabelError(f"{name}: text {row} has no {what}. Label it, or remove it.")


def rows_digest(*columns: Sequence[Any]) -> str:
    """Return the SHA-256 of columns of one length, as rows in order."""
    return digest(list(zip(*columns, strict=True)), escape=False)


def _indices(name: str, rows: Any, n: int) -> list[int]:
    chosen = np.asarray(rows)
    if chosen.ndim != 1:
        raise ShapeError(f"{name}.where got shape {chosen.shape}; it needs {n} booleans or a list of indices.")
    if chosen.dtype == np.bool_:
        if len(chosen) != n:
            raise ShapeError(f"{name}.where got {len(chosen)} booleans for {n} texts; give one for each text.")
        chosen = np.flatnonzero(chosen)
    if len(chosen) and chosen.dtype.kind not in "iu":
        raise ShapeError(f"{name}.where got rows of dtype {chosen.dtype}; it needs {n} booleans or a list of indices.")
    if len(chosen) and not (chosen.min() >= 0 and chosen.max() < n):
        raise ShapeError(f"{name}.where got indices outside 0 to {n - 1}; it holds {n} texts.")
    return [int(i) for i in chosen]
