"""Arrays stored as plain bytes, in ``.npy`` and safetensors files, read without mapping the whole file."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import DamagedFileError, DataError
from repsurgery.scale.formats.stored import Header, widened

__all__ = ["SAFETENSORS_DTYPES", "NpyArray", "SafetensorsArray"]

SAFETENSORS_DTYPES = {
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool"},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
"""The number formats of safetensors files, and their names in NumPy; bfloat16 has none there."""


@dataclass(frozen=True, slots=True)
class NpyArray:
    """A ``.npy`` file."""

    path: Path

    def header(self) -> Header:
        """Read shape and dtype, and check that the file is long enough for them."""
        mapped = self._mapped()
        dtype = "str" if mapped.dtype.kind in "UT" else mapped.dtype.newbyteorder("=").name
        return Header(mapped.shape, dtype)

    def blocks(self, rows: int, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Yield the rows in blocks."""
        mapped = self._mapped()
        if not mapped.flags.c_contiguous or mapped.size == 0:
            # in column order, the elements of a row are not adjacent: read them through the mapping
            yield from (np.array(mapped[i : min(i + rows, stop)]) for i in range(start, stop, rows))
            return
        shape, dtype, offset = mapped.shape, mapped.dtype, mapped.offset
        del mapped
        yield from _read(self.path, dtype, shape, offset, rows, start, stop)

    def _mapped(self) -> np.memmap[Any, Any]:
        try:
            return np.lib.format.open_memmap(self.path, mode="r")
        except Exception as error:
            begin = self._begin()
            if b"'descr': '|O'" in begin:
                problem = "holds Python objects, which are not read from files; save numbers or text"
                raise DataError(f"{self.path} {problem}.") from error
            if begin.startswith(b"PK"):
                raise DamagedFileError(f"{self.path} is an .npz archive. Save each array with numpy.save.") from error
            raise DamagedFileError(
                f"{self.path} is truncated or not a .npy file of numbers or text ({error})."
            ) from error

    def _begin(self) -> bytes:
        try:
            with self.path.open("rb") as stream:
                return stream.read(256)
        except OSError:
            return b""


@dataclass(frozen=True, slots=True)
class SafetensorsArray:
    """One tensor of a safetensors file; without a name, the only tensor with ``ndim`` dimensions."""

    path: Path
    column: str | None
    ndim: int

    def header(self) -> Header:
        """Read shape and dtype, and check that the file is long enough for them."""
        dtype, shape, _ = self._tensor()
        return Header(shape, dtype)

    def blocks(self, rows: int, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Yield the rows in blocks; bfloat16 becomes float32."""
        dtype, shape, offset = self._tensor()
        if dtype == "bfloat16":
            yield from map(widened, _read(self.path, np.dtype("<u2"), shape, offset, rows, start, stop))
        else:
            kind = np.dtype(dtype).newbyteorder("<")
            yield from _read(self.path, kind, shape, offset, rows, start, stop)

    def _tensor(self) -> tuple[str, tuple[int, ...], int]:
        begin, tensors = self._tensors()
        tensor = tensors[self._name(tensors)]
        if begin + tensor.last > self.path.stat().st_size:
            raise self._damaged(f"its header announces {begin + tensor.last} bytes")
        if tensor.dtype not in SAFETENSORS_DTYPES:
            known = ", ".join(SAFETENSORS_DTYPES)
            raise DataError(f"{self.path} holds {tensor.dtype}; convert it to one of {known}.")
        dtype = SAFETENSORS_DTYPES[tensor.dtype]
        itemsize = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
        if tensor.last - tensor.first != prod(tensor.shape) * itemsize:
            raise self._damaged(
                f"{tensor.last - tensor.first} bytes do not hold a {tensor.dtype} of shape {tensor.shape}"
            )
        return dtype, tensor.shape, begin + tensor.first

    def chosen(self) -> str:
        """Return the name of the tensor."""
        return self._name(self._tensors()[1])

    def contents(self) -> tuple[int, dict[str, Any]]:
        """Return where the bytes of the tensors begin, and the header: facts by name, and the metadata."""
        with self.path.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            if size > self.path.stat().st_size:
                raise self._damaged(f"it announces a header of {size} bytes")
            text = stream.read(size)
        try:
            return 8 + size, dict(json.loads(text))
        except (ValueError, TypeError, RecursionError) as error:
            raise self._damaged("its header does not describe tensors") from error

    def _tensors(self) -> tuple[int, dict[str, "_Tensor"]]:
        begin, facts = self.contents()
        facts.pop("__metadata__", None)
        try:
            return begin, {name: _Tensor.of(entry) for name, entry in facts.items()}
        except (ValueError, AttributeError, TypeError, KeyError) as error:
            raise self._damaged("its header does not describe tensors") from error

    def _damaged(self, why: str) -> DamagedFileError:
        return DamagedFileError(f"{self.path} is truncated or is not a safetensors file ({why}). Write it again.")

    def _name(self, tensors: dict[str, "_Tensor"]) -> str:
        if self.column is not None:
            if self.column not in tensors:
                raise DataError(f"{self.path} has no tensor '{self.column}'; it has {', '.join(tensors) or 'none'}.")
            return self.column
        fitting = [name for name, tensor in tensors.items() if len(tensor.shape) == self.ndim]
        if len(fitting) != 1:
            raise DataError(
                f"{self.path} has {len(fitting)} tensors of {self.ndim} dimensions "
                f"({', '.join(tensors) or 'no tensor at all'}). Name the one to read."
            )
        return fitting[0]


@dataclass(frozen=True, slots=True)
class _Tensor:
    """The entry of a tensor in the header of a safetensors file; offsets are relative to the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    first: int
    last: int

    @classmethod
    def of(cls, facts: Any) -> "_Tensor":
        """Read an entry; raise `ValueError` unless its sizes and offsets are natural numbers."""
        first, last = facts["data_offsets"]
        shape = tuple(facts["shape"])
        if not all(isinstance(n, int) and n >= 0 for n in (first, last, *shape)):
            raise ValueError(f"shape {facts['shape']}, offsets {facts['data_offsets']}")
        return cls(str(facts["dtype"]), shape, first, last)


def _read(
    path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, rows: int, start: int, stop: int
) -> Iterator[NDArray[Any]]:
    width = int(np.prod(shape[1:], dtype=np.int64))
    with path.open("rb") as stream:
        stream.seek(offset + start * width * dtype.itemsize)
        for i in range(start, stop, rows):
            count = (min(i + rows, stop) - i) * width
            block = np.fromfile(stream, dtype, count)
            if len(block) < count:
                raise DamagedFileError(f"{path} ended while it was read. Write it again.")
            yield block.reshape(-1, *shape[1:])
