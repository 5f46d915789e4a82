"""A Zarr array, or one array of a Zarr group."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import DamagedFileError, DataError
from repsurgery.scale.formats.stored import Header, needed

__all__ = ["ZarrArray"]


@dataclass(frozen=True, slots=True)
class ZarrArray:
    """An array in a Zarr folder; ``column`` is its name in a group."""

    path: Path
    column: str | None

    def header(self) -> Header:
        """Read the array's metadata."""
        array = self._array()
        dtype = np.dtype(array.dtype)
        return Header(tuple(array.shape), "str" if dtype.kind in "UT" else dtype.name)

    def blocks(self, rows: int, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Yield the rows in blocks; refuse an array with missing chunks, which Zarr would replace by the fill value."""
        array = self._array()
        # Zarr does not write chunks that hold only the fill value, so a lost chunk looks the same
        stored, wanted = _stored_pieces(array)
        if stored < wanted:
            raise DamagedFileError(
                f"{self._name} has {stored} of {wanted} chunks; the rest would be read as {array.fill_value}. If none "
                "was lost, write it again with config={'write_empty_chunks': True}, or give labels in another file."
            )
        for i in range(start, stop, rows):
            try:
                block = np.asarray(array[i : min(i + rows, stop)])
            except MemoryError:
                raise
            except Exception as error:
                raise self._damaged(error) from error
            yield block

    def _array(self) -> Any:
        zarr = needed("zarr", f"Reading {self.path.name}")
        try:
            array = zarr.open(self.path, mode="r")
            if not hasattr(array, "shape"):
                names = ", ".join(array)
                array = array[self.column] if self.column is not None and self.column in array else None
        except Exception as error:
            raise self._damaged(error) from error
        if not hasattr(array, "shape"):
            problem = f"no array '{self.column}'" if self.column else "several arrays"
            raise DataError(f"{self.path} is a group with {problem}: {names}. Name the one to read.")
        return array

    @property
    def _name(self) -> str:
        return str(self.path) if self.column is None else f"{self.path}, array '{self.column}',"

    def _damaged(self, error: Exception) -> DamagedFileError:
        return DamagedFileError(f"{self.path} is damaged or not a Zarr array or group ({error!r}). Write it again.")


def _stored_pieces(array: Any) -> tuple[int, int]:
    """Return the numbers of stored and of expected chunks; for an array with shards, the numbers of shards."""
    piece = array.shards or array.chunks
    # Zarr counts every chunk of a stored shard, including those beyond the edge of the array
    inside = prod(a // b for a, b in zip(piece, array.chunks, strict=True))
    return array.nchunks_initialized // inside, prod(-(-n // a) for n, a in zip(array.shape, piece, strict=True))
