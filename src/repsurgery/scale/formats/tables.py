"""Open Parquet, Feather and Arrow files and read batches of chosen columns and rows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repsurgery.errors import DamagedFileError, SurgeryError
from repsurgery.scale.formats.stored import needed

__all__ = ["PARQUET", "Table", "is_list", "open_table"]

PARQUET = (".parquet", ".pq")


@dataclass(frozen=True, slots=True)
class Table:
    """An open file: its schema, its number of rows, and a function ``batches(columns, batch_rows, start, stop)``."""

    schema: Any
    rows: int
    batches: Callable[[list[str], int, int, int], Iterator[Any]]


@contextmanager
def open_table(path: Path) -> Iterator[Table]:
    """Open the file. Any error of its reader while it is open becomes a `DamagedFileError` that names the file."""
    needed("pyarrow", f"Reading {path.name}")
    try:
        with _parquet(path) if path.suffix.lower() in PARQUET else _ipc(path) as table:
            yield table
    except (SurgeryError, MemoryError):
        raise
    except Exception as error:
        raise DamagedFileError(f"{path} is truncated or not a file of its kind ({error}). Write it again.") from error


@contextmanager
def _parquet(path: Path) -> Iterator[Table]:
    pq = needed("pyarrow.parquet", f"Reading {path.name}")
    # pages are read as needed, because a row group may be as large as the file
    with pq.ParquetFile(path, buffer_size=2**20, pre_buffer=False) as file:
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]

        def batches(names: list[str], rows: int, start: int, stop: int) -> Iterator[Any]:
            wanted, first = _pieces(sizes, start, stop)
            if wanted:
                read = file.iter_batches(rows, row_groups=wanted, columns=names, use_threads=False)
                yield from _between(read, start - first, stop - first)

        yield Table(file.schema_arrow, file.metadata.num_rows, batches)


@contextmanager
def _ipc(path: Path) -> Iterator[Table]:
    pa, ipc = needed("pyarrow", f"Reading {path.name}"), needed("pyarrow.ipc", f"Reading {path.name}")
    types = needed("pyarrow.types", f"Reading {path.name}")
    with path.open("rb") as file:
        indexed = file.read(6) == b"ARROW1"

    def record_batches(stream: Any, pieces: list[int] | None, **choice: Any) -> Iterator[Any]:
        options = ipc.IpcReadOptions(use_threads=False, **choice)
        if not indexed:
            return iter(ipc.open_stream(stream, options=options))
        reader = ipc.open_file(stream, options=options)
        return map(reader.get_batch, range(reader.num_record_batches) if pieces is None else pieces)

    def batches(names: list[str], rows: int, start: int, stop: int) -> Iterator[Any]:
        wanted, first = _pieces(sizes, start, stop) if indexed else (None, 0)
        # a record batch may be as large as the file. A mapped batch costs only pages that the system can reclaim, but
        # selecting its columns would copy them: slice rows first
        with pa.memory_map(str(path)) as stream:
            for batch in _between(record_batches(stream, wanted), start - first, stop - first):
                yield from (batch.slice(i, rows).select(names) for i in range(0, batch.num_rows, rows))

    with pa.memory_map(str(path)) as stream:
        schema = (ipc.open_file if indexed else ipc.open_stream)(stream).schema
    # every column has the lengths, but reading them decompresses the column: take a narrow one
    narrow = min(range(len(schema)), key=lambda i: not types.is_primitive(schema.field(i).type), default=0)
    with pa.memory_map(str(path)) as stream:
        sizes = [batch.num_rows for batch in record_batches(stream, None, included_fields=[narrow])]
    yield Table(schema, sum(sizes), batches)


def _pieces(sizes: Sequence[int], start: int, stop: int) -> tuple[list[int], int]:
    """Return the pieces that hold rows ``start`` to ``stop``, and the first row of the first of them."""
    ends = np.cumsum(sizes, dtype=np.int64)
    wanted = [i for i, end in enumerate(ends) if end > start and end - sizes[i] < stop]
    return wanted, int(ends[wanted[0]] - sizes[wanted[0]]) if wanted else 0


def _between(batches: Iterator[Any], start: int, stop: int) -> Iterator[Any]:
    at = 0
    for batch in batches:
        low, high = max(start - at, 0), min(stop - at, batch.num_rows)
        if low < high:
            yield batch.slice(low, high - low)
        at += batch.num_rows
        if at >= stop:
            return


def is_list(kind: Any) -> bool:
    """Whether a column of this type holds lists."""
    types = needed("pyarrow.types", "Reading a table")
    return bool(types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind))
