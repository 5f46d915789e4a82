"""Columns of Parquet, Feather and Arrow files: lists of numbers, or one plain column per feature."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import DataError
from repsurgery.scale.formats.stored import Header, family_of, needed, recut
from repsurgery.scale.formats.tables import Table, is_list, open_table

__all__ = ["ArrowColumns", "label_values", "type_name", "vector_columns", "vectors"]

SOUGHT = 1024
"""Rows read at a time in the search for the first row that is not null."""


@dataclass(frozen=True, slots=True)
class ArrowColumns:
    """Vectors or labels in a Parquet file or an Arrow file or stream.

    Parameters
    ----------
    path : path
    columns : tuple of str
        One column of lists, or plain columns of numbers; empty: the only column of lists, else all numbers.
    without : str or None
        The column of labels, which is not a feature.
    ndim : int
        2 for vectors, 1 for labels.
    """

    path: Path
    columns: tuple[str, ...]
    without: str | None
    ndim: int

    def header(self) -> Header:
        """Read the schema and, for lists without a fixed length, the first row that is not null."""
        with open_table(self.path) as table:
            if self.ndim == 1:
                return Header((table.rows,), type_name(table.schema.field(self._label(table.schema)).type))
            names = vector_columns(table.schema, self.columns, self.without, self.path)
            width, dtype = _layout(table, names, self.path)
            return Header((table.rows, width), dtype, tuple(names))

    def blocks(self, rows: int, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Yield the rows in blocks."""
        with open_table(self.path) as table:
            if self.ndim == 1:
                names = [self._label(table.schema)]
                arrays = (label_values(batch.column(0)) for batch in table.batches(names, rows, start, stop))
            else:
                names = vector_columns(table.schema, self.columns, self.without, self.path)
                width, _ = _layout(table, names, self.path)
                batches = table.batches(names, rows, start, stop)
                arrays = (vectors(batch, names, self.path, width=width) for batch in batches)
            yield from recut(arrays, rows)

    def _label(self, schema: Any) -> str:
        if len(self.columns) == 1 and self.columns[0] in schema.names:
            return self.columns[0]
        if not self.columns and len(schema.names) == 1:
            return str(schema.names[0])
        problem = f"has no column '{self.columns[0]}'" if self.columns else "has several columns"
        raise DataError(f"{self.path} {problem}; it has {', '.join(schema.names)}. Name the column of labels.")


def vector_columns(schema: Any, columns: tuple[str, ...], without: str | None, where: Any) -> list[str]:
    """Return the columns that hold the vectors: ``columns``, else the only lists, else all numbers.

    The label and the index of a pandas table are features only where ``columns`` names them.
    """
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise DataError(f"{where} has no column {', '.join(missing)}; it has {', '.join(schema.names)}.")
    names = list(columns) or _features(schema, {without, *_index(schema)}, where)
    duplicate = next((name for name in names if schema.names.count(name) > 1), None)
    if duplicate is not None:
        raise DataError(f"{where} has two columns '{duplicate}'. Rename one of them.")
    return names


def _features(schema: Any, without: set[str | None], where: Any) -> list[str]:
    fields = [field for field in schema if field.name not in without]
    lists = [field.name for field in fields if is_list(field.type)]
    if len(lists) > 1:
        raise DataError(f"{where} has several columns of lists ({', '.join(lists)}). Name the one to read.")
    numbers = [field.name for field in fields if family_of(_plain(field.type)) == "number"]
    if not (lists or numbers):
        raise DataError(f"{where} has no column of numbers or of lists of them; it has {', '.join(schema.names)}.")
    return lists or numbers


def _index(schema: Any) -> list[str]:
    """Return the columns in which pandas wrote an index; a range index is stored as bounds, without a column."""
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in index if isinstance(name, str)]


def vectors(batch: Any, names: list[str], where: Any, *, width: int | None = None) -> NDArray[Any]:
    """Return the vectors (n, d) of a record batch; nulls become NaN, and integers become float64 in any case.

    ``width`` is d where it is known: a batch that holds only null lists does not show it.
    """
    if len(names) == 1 and is_list(batch.schema.field(names[0]).type):
        return _from_lists(batch.column(batch.schema.get_field_index(names[0])), where, width)
    columns = [batch.column(batch.schema.get_field_index(name)) for name in names]
    return np.column_stack([_numbers(column, where) for column in columns])


def label_values(column: Any) -> NDArray[Any]:
    """Return a column of labels; text becomes objects, so that a null stays None."""
    types = needed("pyarrow.types", "Reading a table")
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _layout(table: Table, names: list[str], where: Path) -> tuple[int, str]:
    kinds = [table.schema.field(name).type for name in names]
    if len(kinds) == 1 and is_list(kinds[0]):
        fixed = getattr(kinds[0], "list_size", None)
        return _first_length(table, names) if fixed is None else fixed, _vector_dtype(kinds[0].value_type)
    wrong = [f"{name} ({kind})" for name, kind in zip(names, kinds, strict=True) if family_of(_plain(kind)) != "number"]
    if wrong:
        raise DataError(f"{where} has columns that are not numbers: {', '.join(wrong)}. Name the features.")
    return len(names), str(np.result_type(*map(_vector_dtype, kinds)))


def _first_length(table: Table, names: list[str]) -> int:
    for batch in table.batches(names, SOUGHT, 0, table.rows):
        lengths = batch.column(0).drop_null().value_lengths()
        if len(lengths):
            return int(lengths[0].as_py())
    return 0


def _from_lists(column: Any, where: Any, width: int | None) -> NDArray[Any]:
    valid = np.asarray(column.is_valid())
    fixed = getattr(column.type, "list_size", None)
    if fixed is None:
        lengths = np.asarray(column.drop_null().value_lengths())
        if width is None:
            width = int(lengths[0]) if len(lengths) else 0
        if (lengths != width).any():
            raise DataError(f"{where} has lists of several lengths. Give every row the same number of features.")
    else:
        width = fixed
    rows = _numbers(column.flatten(), where).reshape(int(valid.sum()), width)
    if len(rows) == len(valid):
        return rows
    whole = np.full((len(valid), width), np.nan, dtype=rows.dtype)
    whole[valid] = rows
    return whole


def _numbers(values: Any, where: Any) -> NDArray[Any]:
    if family_of(_plain(values.type)) != "number":
        raise DataError(f"{where} has {values.type} where numbers are needed. Name the features.")
    return np.asarray(values.to_numpy(zero_copy_only=False)).astype(_vector_dtype(values.type), copy=False)


def _vector_dtype(kind: Any) -> str:
    """Return the dtype in which vectors of an Arrow type are read.

    Integers are read as float64, because any of them may be null. The dtype is then the same for every batch and file.
    """
    name = _plain(kind)
    return "float64" if family_of(name) == "number" and not name.startswith("float") else name


def type_name(kind: Any) -> str:
    """Return the name of an Arrow type as `Header` uses it; a dictionary type counts as the type of its values."""
    types = needed("pyarrow.types", "Reading a table")
    return _plain(kind.value_type if types.is_dictionary(kind) else kind)


def _plain(kind: Any) -> str:
    types = needed("pyarrow.types", "Reading a table")
    if types.is_floating(kind) or types.is_integer(kind):
        return str(np.dtype(kind.to_pandas_dtype()))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "str"
    return "bool" if types.is_boolean(kind) else str(kind)
