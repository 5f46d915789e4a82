"""Hugging Face ``datasets``: data sets in memory, on disk or streamed, one shard per file of theirs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from repsurgery.arrays import Labels, Rows
from repsurgery.errors import DataError, LabelError
from repsurgery.scale.formats.arrow import label_values, type_name, vector_columns, vectors
from repsurgery.scale.formats.stored import label_family, needed
from repsurgery.scale.shards.shard import Schema, Shard, file_state

__all__ = ["PREFIX", "DatasetShard", "HubShard", "dataset_shards", "hub_shards", "resolved"]

PREFIX = "hf:"


@dataclass(frozen=True, slots=True)
class DatasetShard(Shard):
    """A ``datasets.Dataset`` or ``IterableDataset``, or one of its shards."""

    dataset: Any
    columns: tuple[str, ...]
    label_column: str
    title: str
    key: str
    stable: bool = True

    @property
    def name(self) -> str:
        """The title it was given."""
        return self.title

    def schema(self) -> Schema:
        """Read the features, and the rows up to the first that is not null."""
        for batch, names in self.record_batches(1):
            X = vectors(batch, names, self.name)
            if X.shape[1]:
                rows = len(self.dataset) if hasattr(self.dataset, "__len__") else None
                labels = label_family(type_name(batch.schema.field(self.label_column).type), self.name)
                return Schema(rows, X.shape[1], X.dtype.name, labels, tuple(names))
        raise DataError(f"{self.name} is empty: it has no rows, or only nulls. Leave it out.")

    def fingerprint(self) -> Mapping[str, Any]:
        """Return what the caller says decides its rows."""
        return {"dataset": self.key, "columns": self.columns, "label_column": self.label_column}

    def batches(self, rows: int) -> Iterator[tuple[Rows, Labels]]:
        """Stream batches as Arrow tables and take vectors and labels from each."""
        is_stream = not hasattr(self.dataset, "__len__")
        yield from self.blocks(self._anew(rows) if is_stream else self.record_batches(rows))

    def blocks(self, batches: Iterator[tuple[Any, list[str]]]) -> Iterator[tuple[Rows, Labels]]:
        """Take vectors and labels from each batch."""
        width = None
        for batch, names in batches:
            X = vectors(batch, names, self.name, width=width)
            if not X.shape[1]:
                X = vectors(batch, names, self.name, width=self.schema().width)
            width = X.shape[1]
            yield X, label_values(batch.column(batch.schema.get_field_index(self.label_column)))

    def _anew(self, rows: int) -> Iterator[tuple[Any, list[str]]]:
        # a stream is read for its schema first, and again where a worker dies: one that goes on instead of beginning
        # anew would lose rows without a word
        before = next((_first_row_of(batch) for batch, _ in self.record_batches(1)), None)
        found = self.record_batches(rows)
        first = next(found, None)
        if first is None and before is None:
            return
        if first is None or _first_row_of(first[0]) != before:
            raise DataError(
                f"{self.name} does not begin anew when it is read again: its first row is another one, or missing. "
                "Make the stream from a function that opens its source each time, or save it with save_to_disk."
            )
        yield first
        yield from found

    def record_batches(self, rows: int) -> Iterator[tuple[Any, list[str]]]:
        """Stream Arrow batches of one pass, each with the names of its vector columns."""
        for table in self.dataset.with_format("arrow").iter(batch_size=rows):
            if self.label_column not in table.schema.names:
                found = ", ".join(table.schema.names)
                raise LabelError(f"{self.name} has no column '{self.label_column}' of labels; it has {found}.")
            names = vector_columns(table.schema, self.columns, self.label_column, self.name)
            yield from ((batch, names) for batch in table.combine_chunks().to_batches())


@dataclass(frozen=True, slots=True)
class HubShard(Shard):
    """Shard ``index`` of ``count`` of a data set that is streamed from the hub or a folder."""

    source: str
    revision: str | None
    split: str
    columns: tuple[str, ...]
    label_column: str
    index: int
    count: int
    key: str

    @property
    def name(self) -> str:
        """The data set, its split, and which shard of it."""
        return f"{PREFIX}{self.source}:{self.split}[{self.index}/{self.count}]"

    def schema(self) -> Schema:
        """Read the first row of the data set, once for all its shards; their lengths are not known."""
        return _first_row(self.source, self.revision, self.split, self.columns, self.label_column, self.key)

    def fingerprint(self) -> Mapping[str, Any]:
        """Return name and revision, or the state of the folder when it was found."""
        place = [self.source, self.revision, self.split, self.index, self.count, self.key]
        return {"hub": place, "columns": self.columns, "label_column": self.label_column}

    def batches(self, rows: int) -> Iterator[tuple[Rows, Labels]]:
        """Stream the rows."""
        opened = self._opened()
        yield from opened.blocks(opened.record_batches(rows))

    def _opened(self) -> DatasetShard:
        stream = _stream(self.source, self.revision, self.split)
        part = stream.shard(num_shards=self.count, index=self.index) if self.count > 1 else stream
        return DatasetShard(part, self.columns, self.label_column, self.name, self.key)


def dataset_shards(
    dataset: Any, *, label_column: str, columns: Sequence[str] = (), title: str = "dataset", key: str | None = None
) -> list[Shard]:
    """Return the shards of a ``datasets.Dataset`` or ``IterableDataset`` that you hold.

    Parameters
    ----------
    dataset : Dataset or IterableDataset
    label_column, columns
        As in `find_shards`.
    title : str
        What messages call it.
    key : str or None
        What decides its rows, for work that is resumed. A `Dataset` has a fingerprint of its own; a stream has none,
        and without a key no work on it is kept (test_streams_without_a_key_are_never_taken_for_one_another).
    """
    known = key or getattr(dataset, "_fingerprint", None)
    stable, known = known is not None, known or f"unknown {uuid4().hex}"
    count = int(getattr(dataset, "num_shards", 1))
    parts = [dataset.shard(num_shards=count, index=i) for i in range(count)] if count > 1 else [dataset]
    return [
        DatasetShard(part, tuple(columns), label_column, f"{title}[{i}/{count}]", f"{known} {i}/{count}", stable)
        for i, part in enumerate(parts)
    ]


def hub_shards(name: str, *, split: str, columns: Sequence[str], label_column: str | None) -> list[Shard]:
    """Return the shards of a data set by its hub id or its folder, streamed and never downloaded whole."""
    if label_column is None:
        raise LabelError(f"{PREFIX}{name} needs the name of its column of labels (--label-column).")
    name = resolved(name)
    revision, key = _revision(name)
    count = int(_stream(name, revision, split).num_shards)
    options = (tuple(columns), label_column)
    return [HubShard(name, revision, split, *options, i, count, key) for i in range(count)]


def resolved(name: str) -> str:
    """Return the absolute path of a local folder, which means the same to workers elsewhere; a hub id as it is."""
    return str(Path(name).resolve()) if Path(name).is_dir() else name


@lru_cache
def _first_row(
    name: str, revision: str | None, split: str, columns: tuple[str, ...], label_column: str, key: str
) -> Schema:
    shard = DatasetShard(_stream(name, revision, split), columns, label_column, f"{PREFIX}{name}:{split}", key)
    return shard.schema()


def _stream(name: str, revision: str | None, split: str) -> Any:
    datasets = needed("datasets", f"Streaming {name}")
    try:
        return datasets.load_dataset(name, split=split, revision=revision, streaming=True)
    except Exception as error:
        raise DataError(f"{PREFIX}{name}, split {split}, cannot be streamed ({error}).") from error


def _revision(name: str) -> tuple[str | None, str]:
    """Return the commit of a data set on the hub, or the state of the files of a folder."""
    if Path(name).is_dir():
        return None, str(file_state(Path(name))[0])
    hub = needed("huggingface_hub", f"Streaming {name}")
    try:
        sha = str(hub.HfApi().dataset_info(name).sha)
    except Exception as error:
        raise DataError(f"{PREFIX}{name} is no folder and was not found on the hub ({error}).") from error
    return sha, sha


def _first_row_of(batch: Any) -> str:
    return repr(batch.slice(0, 1).to_pylist())  # as text, in which NaN equals itself
