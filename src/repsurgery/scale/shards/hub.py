"""Hugging Face data sets in memory, on disk or streamed, with one shard per file of the data set."""

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
from repsurgery.scale.shards.shard import Schema, Shard, file_stamp, file_state

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
        """The title of the data set, and the number of the shard."""
        return self.title

    def schema(self) -> Schema:
        """Read the features, and rows up to the first that is not null."""
        for batch, names in self.record_batches(1):
            X = vectors(batch, names, self.name)
            if X.shape[1]:
                rows = len(self.dataset) if hasattr(self.dataset, "__len__") else None
                labels = label_family(type_name(batch.schema.field(self.label_column).type), self.name)
                return Schema(rows, X.shape[1], X.dtype.name, labels, tuple(names))
        raise DataError(f"{self.name} is empty: it has no rows, or only nulls. Leave it out.")

    def fingerprint(self) -> Mapping[str, Any]:
        """Return the key that the caller gave, and the columns."""
        return {"dataset": self.key, "columns": self.columns, "label_column": self.label_column}

    def batches(self, rows: int) -> Iterator[tuple[Rows, Labels]]:
        """Read Arrow tables and take vectors and labels from each."""
        is_stream = not hasattr(self.dataset, "__len__")
        yield from self.blocks(self._from_start(rows) if is_stream else self.record_batches(rows))

    def blocks(self, batches: Iterator[tuple[Any, list[str]]]) -> Iterator[tuple[Rows, Labels]]:
        """Take vectors and labels from each batch."""
        width = None
        for batch, names in batches:
            X = vectors(batch, names, self.name, width=width)
            if not X.shape[1]:
                X = vectors(batch, names, self.name, width=self.schema().width)
            width = X.shape[1]
            yield X, label_values(batch.column(batch.schema.get_field_index(self.label_column)))

    def _from_start(self, rows: int) -> Iterator[tuple[Any, list[str]]]:
        # a stream is read several times: for its schema, for its rows, and again where a worker dies. A stream that
        # continues instead of starting again would silently lose rows
        before = next((_first_row_of(batch) for batch, _ in self.record_batches(1)), None)
        batches = self.record_batches(rows)
        first = next(batches, None)
        if first is None and before is None:
            return
        if first is None or _first_row_of(first[0]) != before:
            raise DataError(
                f"{self.name} does not start again when it is read again: its first row differs or is missing. "
                "Make the stream from a function that opens its source each time, or save it with save_to_disk."
            )
        yield first
        yield from batches

    def record_batches(self, rows: int) -> Iterator[tuple[Any, list[str]]]:
        """Yield the Arrow batches of one pass, each with the names of its vector columns."""
        for table in self.dataset.with_format("arrow").iter(batch_size=rows):
            if self.label_column not in table.schema.names:
                names = ", ".join(table.schema.names)
                raise LabelError(f"{self.name} has no column '{self.label_column}' of labels; it has {names}.")
            features = vector_columns(table.schema, self.columns, self.label_column, self.name)
            yield from ((batch, features) for batch in table.combine_chunks().to_batches())


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
        """The data set, its split, and the number of the shard."""
        return f"{PREFIX}{self.source}:{self.split}[{self.index}/{self.count}]"

    def schema(self) -> Schema:
        """Read the first row of the data set, once for all its shards; their lengths are unknown."""
        return _first_row(self.source, self.revision, self.split, self.columns, self.label_column, self.key)

    def fingerprint(self) -> Mapping[str, Any]:
        """Return name and revision, or the state of the folder when the shards were listed."""
        place = [self.source, self.revision, self.split, self.index, self.count, self.key]
        return {"hub": place, "columns": self.columns, "label_column": self.label_column}

    def stamp(self) -> tuple[int, ...]:
        """Return times and inodes of the files of a folder; a commit on the hub never changes."""
        return file_stamp(Path(self.source)) if self.revision is None else ()

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
    """Return the shards of a ``datasets.Dataset`` or ``IterableDataset``.

    Parameters
    ----------
    dataset : Dataset or IterableDataset
    label_column, columns
        As in `find_shards`.
    title : str
        The name of the data set in messages.
    key : str or None
        An identifier of the rows, for resuming. A `Dataset` has its own fingerprint. A stream has none, and without a
        key no work on it is kept (test_streams_without_a_key_are_never_taken_for_one_another).
    """
    identifier = key or getattr(dataset, "_fingerprint", None)
    stable, identifier = identifier is not None, identifier or f"unknown {uuid4().hex}"
    count = int(getattr(dataset, "num_shards", 1))
    parts = [dataset.shard(num_shards=count, index=i) for i in range(count)] if count > 1 else [dataset]
    return [
        DatasetShard(part, tuple(columns), label_column, f"{title}[{i}/{count}]", f"{identifier} {i}/{count}", stable)
        for i, part in enumerate(parts)
    ]


def hub_shards(name: str, *, split: str, columns: Sequence[str], label_column: str | None) -> list[Shard]:
    """Return the shards of a data set, given by hub id or folder; it is streamed, never downloaded as a whole."""
    if label_column is None:
        raise LabelError(f"{PREFIX}{name} has no separate labels. Name its column of labels (--label-column).")
    name = resolved(name)
    revision, key = _revision(name)
    count = int(_stream(name, revision, split).num_shards)
    options = (tuple(columns), label_column)
    return [HubShard(name, revision, split, *options, i, count, key) for i in range(count)]


def resolved(name: str) -> str:
    """Return the absolute path of a local folder, which workers in other folders need; return a hub id unchanged."""
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
        raise DataError(
            f"{PREFIX}{name}, split {split}, cannot be streamed ({error}). Check its name and split."
        ) from error


def _revision(name: str) -> tuple[str | None, str]:
    """Return the commit of a data set on the hub, and an identifier of its content; a folder has no commit."""
    if Path(name).is_dir():
        return None, str(file_state(Path(name))[0])
    hub = needed("huggingface_hub", f"Streaming {name}")
    try:
        sha = str(hub.HfApi().dataset_info(name).sha)
    except Exception as error:
        raise DataError(
            f"{PREFIX}{name} is not a folder and was not found on the hub ({error}). Check the name."
        ) from error
    return sha, sha


def _first_row_of(batch: Any) -> str:
    return repr(batch.slice(0, 1).to_pylist())  # as text, in which NaN equals itself
