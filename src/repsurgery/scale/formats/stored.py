"""The protocol of stored arrays: a header, which is read first, and rows, which are read in blocks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import LabelError, MissingExtraError

__all__ = ["Header", "Stored", "family_of", "label_family", "narrowed", "needed", "recut", "widened"]


@dataclass(frozen=True, slots=True)
class Header:
    """Shape, dtype and feature names of a stored array.

    Attributes
    ----------
    shape : tuple of int
    dtype : str
        The name of the dtype, which may be ``"bfloat16"`` or ``"str"``.
    features : tuple of str or None
        The columns of a table that hold the vectors, in order; None where features have no names.
    """

    shape: tuple[int, ...]
    dtype: str
    features: tuple[str, ...] | None = None


class Stored(Protocol):
    """An array on disk: vectors (n, d) or labels (n,)."""

    @property
    def path(self) -> Path:
        """The file or folder."""
        ...

    def header(self) -> Header:
        """Read shape and dtype without reading values."""
        ...

    def blocks(self, rows: int, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Yield rows ``start`` to ``stop`` in blocks of exactly ``rows``, the last one shorter."""
        ...


def family_of(dtype: str) -> str | None:
    """Return "boolean", "number" (a real one) or "text"; None for other dtypes, such as dates, bytes or objects."""
    if dtype == "bool":
        return "boolean"
    if dtype == "str":
        return "text"
    return "number" if dtype.removeprefix("u").startswith(("int", "float", "bfloat")) else None


def label_family(dtype: str, where: Any) -> str:
    """Return the family of labels of a dtype: "boolean", "number" or "text". Shards of two families are not mixed."""
    family = family_of(dtype)
    if family is None:
        raise LabelError(
            f"{where} has labels of dtype {dtype}; labels are booleans, integers or strings. Convert them."
        )
    return family


def widened(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return bfloat16 values, given as bits, as float32. The conversion is exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrowed(rows: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return float32 values as the bits of the nearest bfloat16, ties to even; infinite where they are beyond it.

    Guarantees
    ----------
    Finite values are rounded as PyTorch rounds them, widened ones to themselves
    (test_bfloat16_is_rounded_as_torch_does).
    """
    bits = np.ascontiguousarray(rows, dtype=np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def recut(blocks: Iterable[NDArray[Any]], rows: int) -> Iterator[NDArray[Any]]:
    """Yield the same rows in blocks of exactly ``rows``, the last one shorter."""
    waiting: list[NDArray[Any]] = []
    for block in blocks:
        waiting.append(block)
        while sum(map(len, waiting)) >= rows:
            whole = np.concatenate(waiting) if len(waiting) > 1 else waiting[0]
            yield whole[:rows]
            waiting = [whole[rows:]] if len(whole) > rows else []
    if waiting:
        yield np.concatenate(waiting)


def needed(module: str, what: str) -> Any:
    """Import ``module``, or raise an error that names the extra to install."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise MissingExtraError(f"{what} needs {package}: pip install 'repsurgery[data]'") from error
