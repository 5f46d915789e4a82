"""`find_shards`: patterns of names in, shards out, each of them once."""

import glob
import json
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from repsurgery.errors import DamagedFileError, DataError, DuplicateWarning, LabelError, ParameterError
from repsurgery.sources.hub import PREFIX, hub_shards
from repsurgery.sources.opening import holds_columns, open_labels, open_vectors
from repsurgery.sources.shard import FileShard, Shard

__all__ = ["find_shards"]


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
        Paths or glob patterns of .npy, .safetensors, .parquet, .feather, .arrow or .zarr; folders that
        ``datasets.save_to_disk`` wrote; or ``hf:NAME``, a data set that is streamed (a hub id or a local folder).
    labels : sequence of str
        The same for labels that lie in files of their own; as many as there are files of vectors.
    columns : sequence of str
        The tensor, array or column of lists that holds the vectors, or the plain columns that are their features.
    label_column : str or None
        The labels in the file of the vectors, or, with ``labels``, in the files of labels.
    split : str
        The split of a data set.
    rows_per_shard : int or None
        Cut larger files into shards of so many rows, so that several workers share them.

    Guarantees
    ----------
    A file that is listed twice, matched by two patterns, or linked, is counted once, with a `DuplicateWarning`
    (test_a_shard_listed_twice_is_counted_once).
    """
    _check_words(sources, labels, label_column, rows_per_shard)
    hub = [source.removeprefix(PREFIX) for source in sources if source.startswith(PREFIX)]
    found: list[Shard] = []
    for name in dict.fromkeys(hub):
        found += hub_shards(name, split=split, columns=columns, label_column=label_column)
    files = _expand([source for source in sources if not source.startswith(PREFIX)], split)
    for vectors, beside in _paired(files, _expand(labels, split)):
        shard = FileShard(open_vectors(vectors, tuple(columns), label_column), open_labels(beside, label_column))
        found += [shard] if rows_per_shard is None else _slices(shard, rows_per_shard)
    return found


def _check_words(sources: Sequence[str], labels: Sequence[str], label_column: str | None, rows: int | None) -> None:
    if isinstance(sources, str) or isinstance(labels, str):
        raise ParameterError("sources and labels are lists of paths or patterns; put the single one into a list.")
    if not sources:
        raise ParameterError("There is no source: give paths or patterns of the vectors.")
    if not labels and label_column is None:
        raise LabelError("There are no labels: give their files (--labels), or their column (--label-column).")
    if rows is not None and rows < 1:
        raise ParameterError(f"rows_per_shard is {rows}; a shard has at least one row.")


def _expand(patterns: Iterable[str], split: str) -> list[Path]:
    found: list[Path] = []
    for pattern in patterns:
        matches = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - absolute patterns
        if not matches:
            raise DataError(f"Nothing matches {pattern}. Check the path; patterns are those of the shell.")
        for match in matches:
            found += _files(Path(match), split)
    return found


def _files(path: Path, split: str) -> list[Path]:
    if path.suffix.lower() == ".zarr" or not path.is_dir():
        return [path]
    if (path / "dataset_dict.json").is_file():
        return _files(path / split, split)
    if (path / "state.json").is_file():
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        return [path / file["filename"] for file in state["_data_files"]]
    raise DataError(f"{path} is a folder; name the files in it, for example with the pattern '{path}/*.parquet'.")


def _paired(vectors: list[Path], labels: list[Path]) -> list[tuple[Path, Path]]:
    if not labels:
        bare = next((path for path in vectors if not holds_columns(path)), None)
        if bare is not None:
            raise LabelError(f"{bare} cannot hold labels beside its vectors. Give their files (--labels).")
        return _once([(path, path) for path in vectors])
    if len(vectors) != len(labels):
        vectors, labels = ([a for a, _ in _once([(p, p) for p in paths])] for paths in (vectors, labels))
    if len(vectors) != len(labels):
        raise LabelError(
            f"There are {len(vectors)} files of vectors ({_some(vectors)}) and {len(labels)} of labels "
            f"({_some(labels)}); each file of vectors needs its own labels."
        )
    pairs = list(zip(vectors, labels, strict=True))
    _check_numbers(pairs)
    return _once(pairs)


def _once(pairs: list[tuple[Path, Path]]) -> list[tuple[Path, Path]]:
    """Drop pairs whose vectors came before; a link is the file it leads to."""
    kept: dict[tuple[int, int], tuple[Path, Path]] = {}
    for vectors, labels in pairs:
        key = _inode(vectors)
        if key not in kept:
            kept[key] = vectors.resolve(), labels.resolve()
            continue
        if _inode(labels) != _inode(kept[key][1]):
            raise LabelError(f"{vectors} is listed with two files of labels: {kept[key][1]} and {labels}. Keep one.")
        warnings.warn(f"{vectors} is listed twice; it is counted once.", DuplicateWarning, stacklevel=4)
    return list(kept.values())


def _inode(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise DataError(f"{path} cannot be opened ({error.strerror}). Check the path.") from error
    return stat.st_dev, stat.st_ino


def _check_numbers(pairs: list[tuple[Path, Path]]) -> None:
    """Refuse x10 beside z02: both sides carry the same numbers, in another order."""
    numbers = [tuple(_last_number(path) for path in pair) for pair in pairs]
    x, z = [a for a, _ in numbers], [b for _, b in numbers]
    if x != z and None not in x and sorted(map(str, x)) == sorted(map(str, z)):
        i = next(i for i, (a, b) in enumerate(numbers) if a != b)
        raise LabelError(
            f"{pairs[i][0].name} would be read with the labels of {pairs[i][1].name}: names are matched in sorted "
            "order. Write the numbers with leading zeros on both sides, or list the files one by one."
        )


def _last_number(path: Path) -> int | None:
    digits = re.findall(r"\d+", path.stem)
    return int(digits[-1]) if digits else None


def _some(paths: list[Path]) -> str:
    names = [path.name for path in paths[:3]]
    return ", ".join(names + ["…"] * (len(paths) > 3))


def _slices(shard: FileShard, rows: int) -> list[Shard]:
    try:
        n = shard.vectors.header().shape[0]
    except DamagedFileError:
        return [shard]  # its error belongs to the shard, and is told with those of the others
    if n <= rows:
        return [shard]
    return [replace(shard, start=start, stop=min(start + rows, n)) for start in range(0, n, rows)]
