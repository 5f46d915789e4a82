"""From the ending of a name to what reads it."""

from pathlib import Path

from repsurgery.errors import DataError
from repsurgery.scale.formats.arrow import ArrowColumns
from repsurgery.scale.formats.raw import NpyArray, SafetensorsArray
from repsurgery.scale.formats.stored import Stored
from repsurgery.scale.formats.tables import PARQUET
from repsurgery.scale.formats.zarr_array import ZarrArray

__all__ = ["ENDINGS", "holds_columns", "open_labels", "open_vectors"]

ARROW = (".feather", ".arrow")
ENDINGS = (".npy", ".safetensors", *PARQUET, *ARROW, ".zarr")
"""What a file or folder of vectors or labels may be called."""


def open_vectors(path: Path, columns: tuple[str, ...], label_column: str | None) -> Stored:
    """Return the (n, d) array at ``path``; ``columns`` names it where the file holds more than one."""
    if path.suffix.lower() in (*PARQUET, *ARROW):
        return ArrowColumns(path, columns, label_column, 2)
    return _array(path, columns, 2)


def open_labels(path: Path, column: str | None) -> Stored:
    """Return the (n,) array at ``path``."""
    columns = () if column is None else (column,)
    if path.suffix.lower() in (*PARQUET, *ARROW):
        return ArrowColumns(path, columns, None, 1)
    return _array(path, columns, 1)


def holds_columns(path: Path) -> bool:
    """Whether labels can lie in the file of the vectors."""
    return path.suffix.lower() in ENDINGS and path.suffix.lower() != ".npy"


def _array(path: Path, columns: tuple[str, ...], ndim: int) -> Stored:
    if len(columns) > 1:
        raise DataError(f"{path} is no table: name one array of it, not {', '.join(columns)}.")
    column = columns[0] if columns else None
    match path.suffix.lower():
        case ".npy":
            return NpyArray(path)
        case ".safetensors":
            return SafetensorsArray(path, column, ndim)
        case ".zarr":
            return ZarrArray(path, column)
    raise DataError(f"{path} ends in '{path.suffix}'; what can be read ends in {', '.join(ENDINGS)}.")
