"""`find_shards`: patterns of names in, shards out, each of them once."""

import glob
import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from repsurgery.errors import DamagedFileError, DataError, DuplicateWarning, LabelError, ParameterError
from repsurgery.scale.shards.hub import PREFIX, hub_shards, resolved
from repsurgery.scale.shards.numbering import check_numbers
from repsurgery.scale.shards.opening import holds_columns, open_labels, open_vectors
from repsurgery.scale.shards.shard import FileShard, Shard

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
    Numbers in the names of a pair do not contradict each other (test_numbers_tell_which_files_belong_together).
    A file of labels belongs to one file of vectors (test_a_file_of_labels_serves_one_file_of_vectors).
    Rows that a streamed folder and a file in it would both give are refused (test_a_folder_and_its_files_are_refused).
    """
    _check_words(sources, labels, label_column, rows_per_shard)
    plain = [source for source in sources if not source.startswith(PREFIX)]
    hub = _hub_names([source.removeprefix(PREFIX) for source in sources if source.startswith(PREFIX)])
    pairs = _paired(_expand(plain, split), _expand(labels, split))
    _check_apart(hub, [vectors for vectors, _ in pairs])
    found: list[Shard] = []
    for name in hub:
        found += hub_shards(name, split=split, columns=columns, label_column=label_column)
    for vectors, beside in pairs:
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


def _hub_names(names: list[str]) -> list[str]:
    kept: dict[str, None] = {}
    for name in map(resolved, names):
        if name in kept:
            warnings.warn(f"{PREFIX}{name} is listed twice; it is counted once.", DuplicateWarning, stacklevel=3)
        kept[name] = None
    return list(kept)


def _check_apart(hub: list[str], files: list[Path]) -> None:
    """Refuse a folder together with something in it, or a link to that: its rows would be counted twice."""
    for folder in filter(Path.is_dir, map(Path, hub)):
        held = {_inode(path) for path in folder.rglob("*") if path.exists()}
        others = [*files, *(Path(name) for name in hub if Path(name).is_dir())]
        inside = next((path for path in others if _inode(path) in held), None)
        if inside is not None:
            raise DataError(f"{inside} is in {PREFIX}{folder} and would be counted twice. Keep one of the two.")


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
    check_numbers(pairs)
    pairs = _once(pairs)
    _check_labels_once(pairs)
    return pairs


def _check_labels_once(pairs: list[tuple[Path, Path]]) -> None:
    owners: dict[tuple[int, int], Path] = {}
    for vectors, labels in pairs:
        owner = owners.setdefault(_inode(labels), vectors)
        if owner != vectors:
            raise LabelError(f"{labels} is listed as the labels of {owner} and of {vectors}. Give each its own.")


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


def _some(paths: list[Path]) -> str:
    names = [path.name for path in paths[:3]]
    return ", ".join(names + ["…"] * (len(paths) > 3))


def _slices(shard: FileShard, rows: int) -> list[Shard]:
    try:
        n = next(iter(shard.vectors.header().shape), 0)
    except (DamagedFileError, OSError):
        return [shard]  # its error belongs to the shard, and is told with those of the others
    if n <= rows:
        return [shard]
    return [replace(shard, start=start, stop=min(start + rows, n)) for start in range(0, n, rows)]
