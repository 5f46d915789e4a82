"""`ray_dataset_moments`: the last step of a Ray Data pipeline, which turns each block into its moments."""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any

from threadpoolctl import threadpool_limits

from repsurgery.arrays import Labels, Rows
from repsurgery.errors import DataError, MissingExtraError
from repsurgery.moments import ClassMoments
from repsurgery.moments.stream import stream_moments
from repsurgery.scale.formats.arrow import label_values, vector_columns, vectors

__all__ = ["ray_dataset_moments"]

_RESULT = "moments"


def ray_dataset_moments(dataset: Any, *, label_column: str, columns: Sequence[str] = ()) -> ClassMoments:
    """Return the moments of a ``ray.data.Dataset``; no row leaves its worker.

    Parameters
    ----------
    dataset : ray.data.Dataset
        For example read from Parquet, or computed by a model on a pool of actors (``map_batches``).
    label_column : str
    columns : sequence of str
        As in `find_shards`.

    Notes
    -----
    Ray recomputes lost blocks and counts each block once. Nothing is stored for a second run; for that, write shards
    and use `reduce_shards`.

    Guarantees
    ----------
    Equal to the moments of all rows (test_ray_data_sends_moments_and_no_rows).
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtraError("Ray Data needs pyarrow: pip install 'repsurgery[data]'") from error
    schema = dataset.schema()
    names = schema.names if schema is not None else []
    missing = [name for name in (label_column, *columns) if name not in names]
    if missing:
        raise DataError(f"The data set has no column {', '.join(missing)}; it has {', '.join(names) or 'none'}.")

    def of_block(table: Any) -> Any:
        with threadpool_limits(limits=1):
            moments = stream_moments(_pairs(table, tuple(columns), label_column))
        return pa.table({_RESULT: pa.array([moments.to_bytes()], pa.large_binary())})

    blocks = dataset.map_batches(of_block, batch_format="pyarrow", batch_size=None)
    parts = (ClassMoments.from_bytes(row[_RESULT]) for row in blocks.iter_rows())
    return reduce(add, parts, ClassMoments())


def _pairs(table: Any, columns: tuple[str, ...], label_column: str) -> Iterator[tuple[Rows, Labels]]:
    names = vector_columns(table.schema, columns, label_column, "The data set")
    for batch in table.combine_chunks().to_batches():
        labels = batch.column(batch.schema.get_field_index(label_column))
        yield vectors(batch, names, "The data set"), label_values(labels)
