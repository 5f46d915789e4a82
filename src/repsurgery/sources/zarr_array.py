"""A Zarr array, or one array of a Zarr group."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import DamagedFileError, DataError
from repsurgery.sources.stored import Header, needed

__all__ = ["ZarrArray"]


@dataclass(frozen=True, slots=True)
class ZarrArray:
    """An array in a folder that Zarr wrote; ``column`` names it within a group."""

    path: Path
    column: str | None

    def header(self) -> Header:
        """Read the array's metadata."""
        array = self._array()
        dtype = np.dtype(array.dtype)
        return Header(tuple(array.shape), "str" if dtype.kind in "UTO" else dtype.name)

    def blocks(self, rows: int, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Yield the rows in blocks; refuse vectors of which chunks are missing, which Zarr would fill with zeros."""
        array = self._array()
        if len(array.shape) == 2 and array.nchunks_initialized < array.nchunks:
            raise DamagedFileError(
                f"{self.path} has {array.nchunks_initialized} of {array.nchunks} chunks; the others would be read as "
                f"{array.fill_value}. Write it again, with write_empty_chunks where whole chunks are constant."
            )
        for i in range(start, stop, rows):
            yield np.asarray(array[i : min(i + rows, stop)])

    def _array(self) -> Any:
        zarr = needed("zarr", f"Reading {self.path.name}")
        try:
            found = zarr.open(self.path, mode="r")
        except Exception as error:
            raise DamagedFileError(f"{self.path} is no Zarr array or group ({error}). Write it again.") from error
        if not hasattr(found, "shape"):
            if self.column is None or self.column not in found:
                wanted = f"no array '{self.column}'" if self.column else "several arrays"
                raise DataError(f"{self.path} is a group with {wanted}: {', '.join(found)}. Name the one to read.")
            found = found[self.column]
        return found
