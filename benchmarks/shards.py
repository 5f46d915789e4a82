"""Shards of generated vectors on disk, for the scripts about scale."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from repsurgery.scale import Shard, find_shards

__all__ = ["D", "found", "pieces", "write"]

D = 768
CLASSES = 2
CHUNK = 10_000


def write(folder: Path, *, rows: int, count: int, d: int = D) -> None:
    """Write ``rows`` float32 vectors with two classes into ``count`` files each of x and z; what is there is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    scale = np.geomspace(0.1, 10, d, dtype=np.float32)
    sizes = np.diff(np.linspace(0, rows, count + 1).astype(int))
    for i, n in enumerate(sizes.tolist()):
        x, z = folder / f"x{i:04}.npy", folder / f"z{i:04}.npy"
        if x.is_file() and z.is_file():
            continue
        rng = np.random.default_rng([i, rows, d])
        labels = rng.integers(0, CLASSES, n)
        mapped = np.lib.format.open_memmap(x.with_suffix(".new"), "w+", np.float32, (n, d))
        for start in range(0, n, CHUNK):
            part = slice(start, min(start + CHUNK, n))
            mapped[part] = rng.standard_normal((part.stop - start, d), dtype=np.float32) * scale
            mapped[part, :8] += 3 + labels[part, None].astype(np.float32)
        mapped.flush()
        del mapped
        x.with_suffix(".new").rename(x)
        np.save(z, labels)


def found(folder: Path) -> list[Shard]:
    """Return the shards of a folder."""
    return find_shards([f"{folder}/x*.npy"], labels=[f"{folder}/z*.npy"])


def pieces(folder: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield vectors and labels of each file."""
    for x in sorted(folder.glob("x*.npy")):
        yield np.load(x), np.load(x.with_name(f"z{x.name[1:]}"))
