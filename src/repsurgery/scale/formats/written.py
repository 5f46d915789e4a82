"""Rows written block by block to .npy, safetensors and Parquet files, beside what such a file held before."""

import json
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import DataError
from repsurgery.scale.formats.raw import SAFETENSORS_DTYPES, SafetensorsArray
from repsurgery.scale.formats.stored import narrowed, needed
from repsurgery.scale.formats.tables import is_list

__all__ = ["replaced", "text_batch", "with_column", "write_npy", "write_parquet", "write_safetensors"]

_COPIED = 2**20
"""Bytes of other tensors in memory at a time."""

Blocks = Iterable[NDArray[Any]]


def write_npy(stream: BinaryIO, blocks: Blocks, shape: tuple[int, ...], dtype: str) -> None:
    """Write rows of ``dtype`` that come in ``blocks`` and are ``shape`` together."""
    kind = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(stream, {"descr": kind, "fortran_order": False, "shape": shape})
    for block in blocks:
        stream.write(np.ascontiguousarray(block, dtype=dtype).data)


def write_safetensors(
    stream: BinaryIO, blocks: Blocks, shape: tuple[int, ...], dtype: str, name: str, beside: Path | None = None
) -> None:
    """Write rows as the tensor ``name``; the other tensors and the metadata of the file ``beside`` are copied.

    ``dtype`` may be "bfloat16", to which float32 rows are rounded.
    """
    begin, head = (0, {}) if beside is None else SafetensorsArray(beside, None, len(shape)).contents()
    metadata = head.pop("__metadata__", None)
    ours = next(code for code, known in SAFETENSORS_DTYPES.items() if known == dtype)
    itemsize = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    facts = {one: (entry["dtype"], entry["shape"], entry["data_offsets"]) for one, entry in head.items()}
    facts[name] = (ours, list(shape), facts.get(name, (None, None, [2**63, 0]))[2])
    order = sorted(facts, key=lambda one: facts[one][2][0])  # the order of their bytes in the file before
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    last = 0
    for one in order:
        code, sizes, (start, stop) = facts[one]
        first, last = last, last + (prod(shape) * itemsize if one == name else stop - start)
        entries[one] = {"dtype": code, "shape": sizes, "data_offsets": [first, last]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    stream.write(len(text).to_bytes(8, "little") + text)
    for one in order:
        if one != name and beside is not None:
            start, stop = facts[one][2]
            _copy(beside, begin + start, stop - start, stream)
            continue
        for block in blocks:
            bits = (
                narrowed(block)
                if dtype == "bfloat16"
                else np.ascontiguousarray(block, np.dtype(dtype).newbyteorder("<"))
            )
            stream.write(bits.data)


def _copy(path: Path, start: int, size: int, stream: BinaryIO) -> None:
    """Copy ``size`` bytes of a file from ``start`` on."""
    with path.open("rb") as source:
        source.seek(start)
        while size:
            data = source.read(min(size, _COPIED))
            if not data:
                raise DataError(f"{path} ended while it was read. Write it again.")
            stream.write(data)
            size -= len(data)


def write_parquet(stream: BinaryIO, batches: Iterator[Any]) -> None:
    """Write record batches, of which there is at least one; each becomes a row group."""
    pq = needed("pyarrow.parquet", "Writing Parquet")
    first = next(batches)
    with pq.ParquetWriter(stream, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


def with_column(batch: Any, name: str, rows: NDArray[Any]) -> Any:
    """Return a record batch with a further column of lists, which holds the rows (n, d); or, of None, these alone."""
    pa = needed("pyarrow", "Writing Parquet")
    flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    if batch is None:
        return pa.record_batch([column], names=[name])
    if name in batch.schema.names:
        raise DataError(f"The table has a column '{name}' already. Rename it.")
    schema = batch.schema.append(pa.field(name, column.type))
    return pa.record_batch([*batch.columns, column], schema=schema)


def text_batch(columns: Mapping[str, list[str | None]]) -> Any:
    """Return a record batch of columns of text."""
    pa = needed("pyarrow", "Writing Parquet")
    return pa.record_batch({name: pa.array(cells, pa.string()) for name, cells in columns.items()})


def replaced(batch: Any, names: list[str], rows: NDArray[Any]) -> Any:
    """Return a record batch whose columns ``names`` hold the rows (n, d): one column of lists, or one per feature.

    The columns keep their place and metadata, and their type where it holds floating-point numbers.
    """
    pa, types = needed("pyarrow", "Writing Parquet"), needed("pyarrow.types", "Writing Parquet")
    columns, fields = list(batch.columns), list(batch.schema)
    for j, name in enumerate(names):
        i = batch.schema.get_field_index(name)
        kind = fields[i].type
        if is_list(kind):
            flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
            if types.is_fixed_size_list(kind):
                columns[i] = pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
            else:
                ends = np.arange(len(rows) + 1) * rows.shape[1]
                made = pa.LargeListArray if types.is_large_list(kind) else pa.ListArray
                columns[i] = made.from_arrays(
                    pa.array(ends, pa.int64() if types.is_large_list(kind) else pa.int32()), flat
                )
            value = kind.value_type
        else:
            columns[i], value = pa.array(np.ascontiguousarray(rows[:, j])), kind
        if types.is_floating(value):
            columns[i] = columns[i].cast(kind)
        fields[i] = fields[i].with_type(columns[i].type)
    return pa.record_batch(columns, schema=pa.schema(fields, metadata=batch.schema.metadata))
