"""Columns of Parquet, Feather and Arrow files: lists of numbers, or one plain column per feature."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import DamagedFileError, DataError
from repsurgery.sources.stored import Header, needed, recut

__all__ = ["ArrowColumns", "label_values", "vector_columns", "vectors"]

PARQUET = (".parquet", ".pq")


@dataclass(frozen=True, slots=True)
class ArrowColumns:
    """Vectors or labels in a Parquet file or an Arrow file or stream.

    Parameters
    ----------
    path : path
    columns : tuple of str
        One column of lists, or plain columns of numbers; empty: the only column of lists, else all numbers.
    without : str or None
        The label's column, which is no feature.
    ndim : int
        2 for vectors, 1 for labels.
    """

    path: Path
    columns: tuple[str, ...]
    without: str | None
    ndim: int

    def header(self) -> Header:
        """Read the schema; of lists without a fixed length, the first row too."""
        with self._open() as table:
            if self.ndim == 1:
                return Header((table.rows,), _name(table.schema.field(self._label(table.schema)).type))
            names = vector_columns(table.schema, self.columns, self.without, self.path)
            width, dtype = _layout(table, names, self.path)
            return Header((table.rows, width), dtype)

    def blocks(self, rows: int, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Yield the rows in blocks."""
        with self._open() as table:
            if self.ndim == 1:
                names = [self._label(table.schema)]
                found = (label_values(batch.column(0)) for batch in table.batches(names, rows, start, stop))
            else:
                names = vector_columns(table.schema, self.columns, self.without, self.path)
                found = (vectors(batch, names, self.path) for batch in table.batches(names, rows, start, stop))
            yield from recut(found, rows)

    def _label(self, schema: Any) -> str:
        if len(self.columns) == 1 and self.columns[0] in schema.names:
            return self.columns[0]
        if not self.columns and len(schema.names) == 1:
            return str(schema.names[0])
        wanted = f"has no column '{self.columns[0]}'" if self.columns else "has several columns"
        raise DataError(f"{self.path} {wanted}; it has {', '.join(schema.names)}. Name the labels' column.")

    @contextmanager
    def _open(self) -> Iterator["_Table"]:
        pa = needed("pyarrow", f"Reading {self.path.name}")
        try:
            with _parquet(self.path) if self.path.suffix.lower() in PARQUET else _ipc(self.path) as table:
                yield table
        except (pa.ArrowException, OSError) as error:
            raise DamagedFileError(
                f"{self.path} is truncated or no file of its kind ({error}). Write it again."
            ) from error


@dataclass(frozen=True, slots=True)
class _Table:
    """An open file: its schema, its number of rows, and batches of some columns between two rows."""

    schema: Any
    rows: int
    batches: Callable[[list[str], int, int, int], Iterator[Any]]


@contextmanager
def _parquet(path: Path) -> Iterator[_Table]:
    pq = needed("pyarrow.parquet", f"Reading {path.name}")
    # pages are read as they are needed: a row group may be as large as the file
    with pq.ParquetFile(path, buffer_size=2**20, pre_buffer=False) as file:

        def batches(names: list[str], rows: int, start: int, stop: int) -> Iterator[Any]:
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            ends = np.cumsum(sizes, dtype=np.int64)
            wanted = [i for i, end in enumerate(ends) if end > start and end - sizes[i] < stop]
            if wanted:
                first = int(ends[wanted[0]] - sizes[wanted[0]])
                found = file.iter_batches(rows, row_groups=wanted, columns=names, use_threads=False)
                yield from _between(found, start - first, stop - first)

        yield _Table(file.schema_arrow, file.metadata.num_rows, batches)


@contextmanager
def _ipc(path: Path) -> Iterator[_Table]:
    pa, ipc = needed("pyarrow", f"Reading {path.name}"), needed("pyarrow.ipc", f"Reading {path.name}")

    def opened(stream: Any) -> Iterator[Any]:
        with path.open("rb") as file:
            is_file = file.read(6) == b"ARROW1"
        if is_file:
            reader = ipc.open_file(stream)
            return (reader.get_batch(i) for i in range(reader.num_record_batches))
        return iter(ipc.open_stream(stream))

    def batches(names: list[str], rows: int, start: int, stop: int) -> Iterator[Any]:
        with pa.OSFile(str(path)) as stream:
            yield from (batch.select(names) for batch in _between(opened(stream), start, stop))

    # a mapping shows the batches' lengths without reading their values
    with pa.memory_map(str(path)) as stream:
        lengths = [(batch.num_rows, batch.schema) for batch in opened(stream)]
    with pa.OSFile(str(path)) as stream:
        schema = lengths[0][1] if lengths else _schema(ipc, stream)
    yield _Table(schema, sum(n for n, _ in lengths), batches)


def _schema(ipc: Any, stream: Any) -> Any:
    try:
        return ipc.open_file(stream).schema
    except ValueError:
        stream.seek(0)
        return ipc.open_stream(stream).schema


def _between(batches: Iterator[Any], start: int, stop: int) -> Iterator[Any]:
    at = 0
    for batch in batches:
        low, high = max(start - at, 0), min(stop - at, batch.num_rows)
        if low < high:
            yield batch.slice(low, high - low)
        at += batch.num_rows
        if at >= stop:
            return


def vector_columns(schema: Any, columns: tuple[str, ...], without: str | None, where: Any) -> list[str]:
    """Return the columns that hold the vectors: those named, else the only list, else all numbers but the label."""
    types = needed("pyarrow.types", "Reading a table")
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise DataError(f"{where} has no column {', '.join(missing)}; it has {', '.join(schema.names)}.")
    if columns:
        return list(columns)
    fields = [field for field in schema if field.name != without]
    lists = [field.name for field in fields if _is_list(field.type)]
    if len(lists) > 1:
        raise DataError(f"{where} has several columns of lists ({', '.join(lists)}). Name the one to read.")
    numbers = [f.name for f in fields if types.is_floating(f.type) or types.is_integer(f.type)]
    if not (lists or numbers):
        raise DataError(f"{where} has no column of numbers or of lists of them; it has {', '.join(schema.names)}.")
    return lists or numbers


def vectors(batch: Any, names: list[str], where: Any) -> NDArray[Any]:
    """Return a record batch's vectors (n, d); what is null is NaN."""
    if len(names) == 1 and _is_list(batch.schema.field(names[0]).type):
        return _from_lists(batch.column(batch.schema.get_field_index(names[0])), where)
    columns = [batch.column(batch.schema.get_field_index(name)) for name in names]
    return np.column_stack([_numbers(column, where) for column in columns])


def label_values(column: Any) -> NDArray[Any]:
    """Return a column of labels; text as objects, so that a null stays None."""
    types = needed("pyarrow.types", "Reading a table")
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _layout(table: _Table, names: list[str], where: Path) -> tuple[int, str]:
    types = needed("pyarrow.types", f"Reading {where.name}")
    kinds = [table.schema.field(name).type for name in names]
    if len(kinds) == 1 and _is_list(kinds[0]):
        width = kinds[0].list_size if types.is_fixed_size_list(kinds[0]) else _first_length(table, names, where)
        return width, _name(kinds[0].value_type)
    wrong = [f"{name} ({kind})" for name, kind in zip(names, kinds, strict=True) if _name(kind) in ("str", "bool")]
    if wrong:
        raise DataError(f"{where} has columns that are no numbers: {', '.join(wrong)}. Name the features.")
    return len(names), str(np.result_type(*map(_name, kinds)))


def _first_length(table: _Table, names: list[str], where: Path) -> int:
    for batch in table.batches(names, 1, 0, 1):
        return int(vectors(batch, names, where).shape[1])
    return 0


def _from_lists(column: Any, where: Any) -> NDArray[Any]:
    valid = np.asarray(column.is_valid())
    flat = _numbers(column.flatten(), where)
    present = int(valid.sum())
    fixed = getattr(column.type, "list_size", None)
    width = fixed if fixed is not None else (len(flat) // present if present else 0)
    if fixed is None and present and (np.diff(np.asarray(column.drop_null().value_lengths())) != 0).any():
        raise DataError(f"{where} has lists of several lengths. Give every row the same number of features.")
    rows = flat.reshape(present, width)
    if present == len(valid):
        return rows
    whole = np.full((len(valid), width), np.nan, dtype=np.result_type(rows.dtype, np.float16))
    whole[valid] = rows
    return whole


def _numbers(values: Any, where: Any) -> NDArray[Any]:
    found = np.asarray(values.to_numpy(zero_copy_only=False))
    if found.dtype.kind not in "fiu":
        raise DataError(f"{where} has {values.type} where numbers are needed. Name the features.")
    return found


def _is_list(kind: Any) -> bool:
    types = needed("pyarrow.types", "Reading a table")
    return bool(types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind))


def _name(kind: Any) -> str:
    types = needed("pyarrow.types", "Reading a table")
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_boolean(kind):
        return "bool"
    return str(np.dtype(kind.to_pandas_dtype())) if types.is_floating(kind) or types.is_integer(kind) else "str"
