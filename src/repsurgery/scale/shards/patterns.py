"""`find_shards`: from paths and patterns to shards, each of them once."""

import glob
import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from repsurgery.errors import DamagedFileError, DataError, DuplicateWarning, LabelError, ParameterError
from repsurgery.scale.formats.arrow import ArrowColumns
from repsurgery.scale.formats.raw import NpyArray, SafetensorsArray
from repsurgery.scale.formats.stored import Stored
from repsurgery.scale.formats.tables import PARQUET
from repsurgery.scale.formats.zarr_array import ZarrArray
from repsurgery.scale.shards.hub import PREFIX, hub_shards, resolved
from repsurgery.scale.shards.pairing import inode, pair_files, pair_with_themselves
from repsurgery.scale.shards.shard import FileShard, Shard

__all__ = ["find_shards", "stored_at"]

TABLES = (*PARQUET, ".feather", ".arrow")
SUFFIXES = (".npy", ".safetensors", *TABLES, ".zarr")


def find_shards(
    sources: Sequence[str],
    *,
    labels: Sequence[str] = (),
    columns: Sequence[str] = (),
    label_column: str | None = None,
    split: str = "train",
    rows_per_shard: int | None = None,
) -> list[Shard]:
    """Return the shards that patterns name, vectors paired with labels in sorted order.

    Parameters
    ----------
    sources : sequence of str
        Paths or glob patterns of .npy, .safetensors, .parquet, .feather, .arrow or .zarr; folders written by
        ``datasets.save_to_disk``; or ``hf:NAME``, a streamed data set (a hub id or a local folder).
    labels : sequence of str
        Paths or patterns of separate files of labels; as many files as there are files of vectors.
    columns : sequence of str
        The tensor, array or column of lists that holds the vectors, or the scalar columns that are their features.
    label_column : str or None
        The column of labels in the files of vectors or, with ``labels``, in the files of labels.
    split : str
        The split of a data set.
    rows_per_shard : int or None
        Split larger files into shards of this many rows, so that several workers share a file.

    Guarantees
    ----------
    A file that is listed twice, matched by two patterns, or linked, is counted once, with a `DuplicateWarning`
    (test_a_shard_listed_twice_is_counted_once).
    Numbers in the names of a pair do not contradict each other (test_numbers_tell_which_files_belong_together).
    A file of labels belongs to one file of vectors (test_a_file_of_labels_serves_one_file_of_vectors).
    Rows that a streamed folder and a file in it would both give are refused (test_a_folder_and_its_files_are_refused).
    """
    _check_arguments(sources, labels, label_column, rows_per_shard)
    files = _expand((source for source in sources if not source.startswith(PREFIX)), split)
    hub = _hub_names([source.removeprefix(PREFIX) for source in sources if source.startswith(PREFIX)])
    pairs = pair_files(files, _expand(labels, split)) if labels else pair_with_themselves(_with_labels_inside(files))
    _check_apart(hub, [vectors for vectors, _ in pairs])
    shards: list[Shard] = []
    for name in hub:
        shards += hub_shards(name, split=split, columns=columns, label_column=label_column)
    for vectors, beside in pairs:
        label_columns = () if label_column is None else (label_column,)
        shard = FileShard(
            stored_at(vectors, tuple(columns), label_column, ndim=2), stored_at(beside, label_columns, None, ndim=1)
        )
        shards += [shard] if rows_per_shard is None else _slices(shard, rows_per_shard)
    return shards


def _check_arguments(sources: Sequence[str], labels: Sequence[str], label_column: str | None, rows: int | None) -> None:
    if isinstance(sources, str) or isinstance(labels, str):
        raise ParameterError("sources and labels are lists of paths or patterns; put the single one into a list.")
    if not sources:
        raise ParameterError("There is no source: give paths or patterns of the vectors.")
    if not labels and label_column is None:
        raise LabelError("There are no labels: give their files (--labels), or their column (--label-column).")
    if rows is not None and rows < 1:
        raise ParameterError(f"rows_per_shard is {rows}; a shard has at least one row.")


def _expand(patterns: Iterable[str], split: str) -> list[Path]:
    files: list[Path] = []
    for pattern in patterns:
        matches = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - absolute patterns
        if not matches:
            raise DataError(f"Nothing matches {pattern}. Check the path; patterns are those of the shell.")
        for match in matches:
            files += _files(Path(match), split)
    return files


def _files(path: Path, split: str) -> list[Path]:
    if path.suffix.lower() == ".zarr" or not path.is_dir():
        return [path]
    if (path / "dataset_dict.json").is_file():
        return _files(path / split, split)
    if (path / "state.json").is_file():
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        return [path / file["filename"] for file in state["_data_files"]]
    raise DataError(f"{path} is a folder; name the files in it, for example with the pattern '{path}/*.parquet'.")


def _hub_names(names: list[str]) -> list[str]:
    unique: dict[str, None] = {}
    for name in map(resolved, names):
        if name in unique:
            warnings.warn(f"{PREFIX}{name} is listed twice; it is counted once.", DuplicateWarning, stacklevel=3)
        unique[name] = None
    return list(unique)


def _with_labels_inside(files: list[Path]) -> list[Path]:
    for path in files:
        if path.suffix.lower() not in SUFFIXES or path.suffix.lower() == ".npy":
            raise LabelError(f"{path} cannot hold labels beside its vectors. Give their files (--labels).")
    return files


def _check_apart(hub: list[str], files: list[Path]) -> None:
    """Refuse a folder together with a file or folder in it, or a link to one: its rows would be counted twice."""
    folders = [Path(name) for name in hub if Path(name).is_dir()]
    for folder in folders:
        contents = {inode(path) for path in folder.rglob("*") if path.exists()}
        inside = next((path for path in [*files, *folders] if inode(path) in contents), None)
        if inside is not None:
            raise DataError(f"{inside} is in {PREFIX}{folder} and would be counted twice. Keep one of the two.")


def stored_at(path: Path, columns: tuple[str, ...], without: str | None, *, ndim: int) -> Stored:
    """Return the array at ``path``; ``columns`` names it where the file holds more than one."""
    suffix = path.suffix.lower()
    if suffix in TABLES:
        return ArrowColumns(path, columns, without, ndim)
    if len(columns) > 1:
        raise DataError(f"{path} is not a table: name one of its arrays, not {', '.join(columns)}.")
    column = columns[0] if columns else None
    match suffix:
        case ".npy":
            return NpyArray(path)
        case ".safetensors":
            return SafetensorsArray(path, column, ndim)
        case ".zarr":
            return ZarrArray(path, column)
    raise DataError(f"{path} ends in '{path.suffix}'; supported files end in {', '.join(SUFFIXES)}.")


def _slices(shard: FileShard, rows: int) -> list[Shard]:
    try:
        n = next(iter(shard.vectors.header().shape), 0)
    except (DamagedFileError, OSError):
        return [shard]  # its error is reported with those of the other shards
    if n <= rows:
        return [shard]
    return [replace(shard, start=start, stop=min(start + rows, n)) for start in range(0, n, rows)]
