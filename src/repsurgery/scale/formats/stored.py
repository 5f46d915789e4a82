"""What a file or folder stores: one array, known by its header before it is read, and read in blocks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import LabelError, MissingExtraError

__all__ = ["Header", "Stored", "family_of", "label_family", "needed", "recut", "widened"]


@dataclass(frozen=True, slots=True)
class Header:
    """What a stored array is.

    Attributes
    ----------
    shape : tuple of int
    dtype : str
        By name, with ``"bfloat16"`` and ``"str"`` among them.
    features : tuple of str or None
        The columns of a table that hold the vectors, in their order; None where only their place tells them apart.
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
        """Read shape and dtype, and no values."""
        ...

    def blocks(self, rows: int, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Yield rows ``start`` to ``stop`` in blocks of exactly ``rows``, the last one shorter."""
        ...


def family_of(dtype: str) -> str | None:
    """Return "boolean", "number" (real ones) or "text"; None for everything else, as dates, bytes or objects."""
    if dtype == "bool":
        return "boolean"
    if dtype == "str":
        return "text"
    return "number" if dtype.removeprefix("u").startswith(("int", "float", "bfloat")) else None


def label_family(dtype: str, where: Any) -> str:
    """Return what labels of a dtype are: "boolean", "number" or "text"; classes of two families never meet."""
    family = family_of(dtype)
    if family is None:
        raise LabelError(f"{where} has labels of dtype {dtype}; they are booleans, integers or strings. Convert them.")
    return family


def widened(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return bfloat16 values, given as their bits, as float32; exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def recut(blocks: Iterable[NDArray[Any]], rows: int) -> Iterator[NDArray[Any]]:
    """Yield the same rows in blocks of exactly ``rows``, the last one shorter."""
    held: list[NDArray[Any]] = []
    for block in blocks:
        held.append(block)
        while sum(map(len, held)) >= rows:
            whole = np.concatenate(held) if len(held) > 1 else held[0]
            yield whole[:rows]
            held = [whole[rows:]] if len(whole) > rows else []
    if held:
        yield np.concatenate(held)


def needed(module: str, what: str) -> Any:
    """Import ``module``, or say which extra holds it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise MissingExtraError(f"{what} needs {package}: pip install 'repsurgery[data]'") from error
